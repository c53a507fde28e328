"""The thread that draws the display on a terminal, or says its plain lines, and alone writes there while it lives."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from ppsmoke.blocking_write import write_all
from ppsmoke.display.frame import Paper, frame
from ppsmoke.display.plain import PlainLines
from ppsmoke.display.screen import Screen, unobeyed
from ppsmoke.display.state import DisplayState, begin, fold
from ppsmoke.run_events import RunBegan, RunEvent, RunPaused, RunResumed

log = logging.getLogger(__name__)

_EVERY_S = 0.25
_PLAIN_EVERY_S = 1.0
_END_S = 5.0  # for a terminal that takes nothing, as after Ctrl-S
_ASIDE_S = 0.5


class _Watcher(threading.Thread):
    """Folds what happens. The rest of the process only hands over, and never waits for the terminal."""

    def __init__(self, run: RunBegan, every_s: float) -> None:
        super().__init__(name="display", daemon=True)
        self._state = begin(run, time.monotonic())
        self._every_s = every_s
        self._changed = threading.Condition()
        self._over = False

    def happened(self, event: RunEvent) -> None:
        """From any thread."""
        with self._changed:
            self._state = fold(self._state, event, time.monotonic())

    def finish(self) -> None:
        """Return when the last of it is shown, or a terminal that takes nothing has been waited for long enough."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self.join(_END_S)


class PlainDisplay(_Watcher):
    """`say` gets a line now and then."""

    def __init__(self, run: RunBegan, say: Callable[[str], None], *, decoding: bool) -> None:
        super().__init__(run, _PLAIN_EVERY_S)
        self._say = say
        self._lines = PlainLines(decoding=decoding)

    def run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over, self._every_s)
                if self._over:
                    return
                state = self._state
            if (line := self._lines.line(state, time.monotonic())) is not None:
                self._say(line)


@dataclass
class _Jobs:
    """What waits for the thread, in order: what becomes bytes on the screen, and who is told when they are written."""

    makers: list[Callable[[Screen], str]] = field(default_factory=list)
    done: list[Callable[[OSError | None], None]] = field(default_factory=list)


class LiveDisplay(_Watcher):
    """The block on a terminal. Everything else that goes there while it lives goes through `line` and `text`."""

    def __init__(self, run: RunBegan, console: Console, fd: int) -> None:
        super().__init__(run, _EVERY_S)
        self._console = console
        self._fd = fd
        self._jobs = _Jobs()
        self._note = ""
        self._aside = False
        self._failure: OSError | None = None
        self._drawn: tuple[object, ...] = ()
        self._ascii_only = "utf" not in (sys.stderr.encoding or "").lower()
        self._undrawable = False

    # ---- from any thread

    def line(self, text: str, style: str = "") -> None:
        """A line of news above the block; its breaks are the caller's."""
        rendered = _ansi(Text(unobeyed(text), style), self._console)
        self._post(lambda screen: screen.line(rendered))

    async def text(self, piece: str) -> None:
        """More of the generated text; waits until the terminal has taken it. Raises OSError."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def done(error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, written, error)

        self._post(lambda screen: screen.text(piece), done)
        await written

    def sign(self, text: str) -> None:
        """Text that somebody's typing follows."""
        self._post(lambda screen: screen.text(text))

    def typed(self) -> None:
        """Somebody ended a line at the keyboard."""
        self._post(Screen.typed)

    def note(self, text: str) -> None:
        """What is waited for, in words."""
        with self._changed:
            self._note = text

    def happened(self, event: RunEvent) -> None:
        """See _Watcher. Returns before a pause when the terminal is left to the shell."""
        super().happened(event)
        if isinstance(event, RunPaused):
            self._leave()
        elif isinstance(event, RunResumed):
            self._come_back()

    def _leave(self) -> None:
        written = threading.Event()
        with self._changed:
            self._aside = True
        self._post(Screen.clear, lambda _error: written.set())
        written.wait(_ASIDE_S)

    def _come_back(self) -> None:
        """Others have written to the terminal meanwhile: go on below that."""
        with self._changed:
            self._aside = False
            self._drawn = ()
        self._post(Screen.typed)

    def _post(self, make: Callable[[Screen], str], done: Callable[[OSError | None], None] = lambda error: None) -> None:
        with self._changed:
            self._jobs.makers.append(make)
            self._jobs.done.append(done)
            self._changed.notify()

    # ---- the thread

    def run(self) -> None:
        screen = Screen(*self._size())
        next_frame = time.monotonic()
        while True:
            with self._changed:
                wait_s = max(0.0, next_frame - time.monotonic())
                self._changed.wait_for(lambda: self._over or self._jobs.makers, wait_s)
                jobs, self._jobs = self._jobs, _Jobs()
                over = self._over
            out = [self._resized(screen), *(make(screen) for make in jobs.makers)]
            if over:
                out.append(self._last_frame(screen))
            elif time.monotonic() >= next_frame:
                out.append(self._next_frame(screen))
                next_frame = time.monotonic() + self._every_s
            self._write("".join(out))
            for done in jobs.done:
                done(self._failure)
            if over:
                return

    def _resized(self, screen: Screen) -> str:
        size = self._size()
        if size == (screen.width, screen.height):
            return ""
        screen.resize(*size)
        self._drawn = ()
        # The old lines may be longer than the screen is wide.
        return screen.clear() + self._next_frame(screen)

    def _next_frame(self, screen: Screen) -> str:
        with self._changed:
            state, note, aside = self._state, self._note, self._aside
        if aside or not _in_foreground(self._fd):
            cleared = "" if self._drawn == () else screen.clear()
            self._drawn = ()
            return cleared
        lines = self._lines(state, screen, note)
        if self._drawn == (*lines,):
            return ""
        self._drawn = (*lines,)
        return screen.block(lines)

    def _last_frame(self, screen: Screen) -> str:
        with self._changed:
            state = self._state
        return screen.end(self._lines(state, screen, ""))

    def _lines(self, state: DisplayState, screen: Screen, note: str) -> list[str]:
        # A cell is left free at the right: a cursor beyond the last one is not the same everywhere.
        paper = Paper(max(10, screen.width - 1), max(1, screen.height - 2), self._ascii_only)
        try:
            return [_ansi(line, self._console) for line in frame(state, time.monotonic(), paper, note)]
        except Exception:
            # The text goes through this thread, and whoever waits for it would wait for ever.
            if not self._undrawable:
                log.exception("the run's picture cannot be drawn")
            self._undrawable = True
            return []

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._fd)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _write(self, data: str) -> None:
        if not data or self._failure is not None:
            return
        try:
            write_all(self._fd, data.encode(errors="replace"))
        except OSError as error:
            self._failure = error  # the terminal is gone: the run matters more


def _in_foreground(fd: int) -> bool:
    """Whether the terminal is ours: in the background a block would run through what the user does there."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not our controlling terminal: nobody else's job control is in the way
        return True


def _ansi(text: Text, console: Console) -> str:
    return "".join(
        segment.style.render(segment.text) if segment.style is not None else segment.text
        for segment in text.render(console)
    )


def _settle(written: asyncio.Future[None], error: OSError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
