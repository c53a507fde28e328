"""A file with every call to vast.ai and what came of it: what the service really does is known from such files only.

When it is closed, what it says of the open questions goes into a file beside it.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from logging.handlers import MemoryHandler
from pathlib import Path

from ppsmoke.bundle.names import CALLS, SERVICE
from ppsmoke.log_format import RedactingFormatter
from ppsmoke.redaction import Redactor
from ppsmoke.vast.service_facts import service_facts

_FORMAT = "%(asctime)s.%(msecs)03d %(message)s"
_MOST_BEFORE = 1000


class CallLog:
    """Collects from its making on; `write_to` says where, once that is known. A context manager."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("ppsmoke.vast")
        self._level_before = self._logger.level
        self._collected = MemoryHandler(_MOST_BEFORE, flushLevel=logging.CRITICAL + 1)
        self._file: logging.FileHandler | None = None

    def __enter__(self) -> CallLog:
        self._logger.setLevel(logging.DEBUG)
        self._logger.addHandler(self._collected)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._collected)
        self._logger.setLevel(self._level_before)
        self._collected.close()
        if self._file is not None:
            self._logger.removeHandler(self._file)
            path = Path(self._file.baseFilename)
            with suppress(OSError):
                self._file.close()
                # Redacted already: it is read from the file.
                facts = service_facts(path.read_text(errors="replace").splitlines())
                (path.parent / SERVICE).write_text(json.dumps(facts, indent=1) + "\n")

    def write_to(self, log_dir: Path, redactor: Redactor) -> None:
        """What was collected, and what comes. A file that cannot be written is no reason to stop."""
        with suppress(OSError):
            self._file = _Quiet(log_dir / CALLS)
            self._file.setFormatter(RedactingFormatter(redactor, _FORMAT))
            self._collected.setTarget(self._file)
            self._collected.flush()
            self._logger.addHandler(self._file)
            self._logger.removeHandler(self._collected)


class _Quiet(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not fill the terminal as well."""
