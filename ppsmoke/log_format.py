"""The lines of a log file, with everything secret blacked out."""

from __future__ import annotations

import logging

from ppsmoke.redaction import Redactor

CLOCK = "%H:%M:%S"


class RedactingFormatter(logging.Formatter):
    """`layout` as logging has it; times of the day."""

    def __init__(self, redactor: Redactor, layout: str) -> None:
        super().__init__(layout, datefmt=CLOCK)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.clean(super().format(record))
