"""How far loading and compiling are, as lines of the worker's output, seldom enough to cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

_EVERY_S = 0.25


class Lines(Protocol):
    def line(self, fields: Mapping[str, Any]) -> None: ...


class ProgressLines:
    """A Progress of an engine: the first of every state is written, and the last, and four a second between."""

    def __init__(self, writer: Lines, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self._state = ""
        self._due = 0.0

    def __call__(
        self, state: Literal["loading", "compiling"], done: int, total: int, unit: Literal["blocks", "kernels"]
    ) -> None:
        now = self._clock()
        if state == self._state and done < total and now < self._due:
            return
        self._state, self._due = state, now + _EVERY_S
        self._writer.line({"status": "progress", "state": state, "done": done, "total": total, "unit": unit})
