"""How a fetch shows itself: a bar with rate and time left on a terminal, plain lines elsewhere, both on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as RichProgress

from ppsmoke.drawable import moves
from ppsmoke.figures import part_of_size, size

_LINE_EVERY_PERCENT = 10
_LINE_EVERY_BYTES = 1 << 28  # where the total is unknown


class Progress(Protocol):
    """What a fetch reports to."""

    def update(self, label: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes (None: unknown) of what `label` says; a new label begins a new piece of work."""

    def note(self, message: str) -> None:
        """One line that is worth saying, as that another process is fetching the same model."""


class SilentProgress:
    def update(self, label: str, done: int, total: int | None) -> None:
        pass

    def note(self, message: str) -> None:
        pass


@contextlib.contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Progress on `stream` (stderr when None), a bar where it is a terminal that shows such."""
    stream = sys.stderr if stream is None else stream
    if not (stream.isatty() and moves(os.environ)):
        yield LineProgress(stream)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(file=stream)) as bars:
        yield _BarProgress(bars)


class LineProgress:
    """A line at the start and at every tenth of the way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._label = ""
        self._next = 0

    def update(self, label: str, done: int, total: int | None) -> None:
        if label != self._label:
            self._label = label
            self._next = 0
        step = _LINE_EVERY_BYTES if total is None else max(1, total * _LINE_EVERY_PERCENT // 100)
        if done < self._next:
            return
        self._next = (done // step + 1) * step
        if total is None:
            self.note(f"{label}: {size(done)}")
        else:
            self.note(f"{label}: {part_of_size(done, total)}")

    def note(self, message: str) -> None:
        with contextlib.suppress(OSError):  # who looks away does not end the fetch
            print(message, file=self._stream, flush=True)


class _BarProgress:
    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._label = ""
        self._task: TaskID | None = None

    def update(self, label: str, done: int, total: int | None) -> None:
        if self._task is None or label != self._label:
            self._label = label
            self._task = self._bars.add_task(label, total=total)
        self._bars.update(self._task, completed=done, total=total)

    def note(self, message: str) -> None:
        self._bars.console.print(message, highlight=False, markup=False)
