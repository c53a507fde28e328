"""What a person sees on standard error while a run goes on. Standard output belongs to the generated text."""

from __future__ import annotations

import logging
import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from ppsmoke.drawable import moves
from ppsmoke.errors import PpError
from ppsmoke.run_events import ErrorSeen, RunBegan, RunEvent, Seen
from ppsmoke.wording import describe_error, wrap

if TYPE_CHECKING:
    from rich.status import Status

    from ppsmoke.display.live import LiveDisplay, PlainDisplay

_CONNECTIONS = ("ppsmoke.transport.", "ppsmoke.edges.")


class _Stderr(Console):
    """A standard error that takes no more (its reader went away, a full disk) falls silent: the run matters more."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True

    def say(self, text: str, end: str = "\n") -> None:
        try:
            self.print(text, end=end)
        except OSError:
            self.quiet = True


class Terminal:
    """Lines on stderr, and on a terminal what moves: while a run goes on its display, else one line that says what is
    waited for.

    `quiet` keeps everything but errors away; `debug` adds every detail line. `run_failed`: the run that is shown has.
    """

    def __init__(self, *, quiet: bool = False, debug: bool = False) -> None:
        self.console = _Stderr()
        self.quiet = quiet
        self.debug = debug
        self.run_failed = False
        self._status: Status | None = None
        self._live: LiveDisplay | None = None
        self._plain: PlainDisplay | None = None
        self._started = time.monotonic()

    def line(self, text: str) -> None:
        """One line of news; on a terminal a longer one breaks between words."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.line(self._fitted(text))
        else:
            self.console.say(escape(self._fitted(text)))

    def detail(self, text: str) -> None:
        """A line for --debug, with the seconds since start."""
        if not self.debug:
            return
        timed = f"{time.monotonic() - self._started:7.2f} {text}"
        if self._live is not None:
            self._live.line(timed, "dim")
        else:
            self.console.say(f"[dim]{escape(timed)}[/dim]")

    def waiting(self, text: str) -> None:
        """What is waited for now; moves on a terminal, silent elsewhere."""
        if self.quiet or not self._moves:
            return
        if self._live is not None:
            self._live.note(text)
            return
        # One line and no more: a wrapped line could not be taken back.
        text = text[: max(10, self.console.width - 4)]
        if self._status is None:
            # Loaded only here: a run has its display instead, and many commands wait for nothing.
            from rich.status import Status

            self._status = Status(escape(text), console=self.console, spinner="dots")
            self._status.start()
        else:
            self._status.update(escape(text))

    def settle(self) -> None:
        """Nothing is waited for: take the moving line away."""
        if self._live is not None:
            self._live.note("")
        if self._status is not None:
            self._status.stop()
            self._status = None

    def sign(self, text: str) -> bool:
        """Show `text` to somebody who is about to type, without ending the line; False where nobody is."""
        if self.quiet or not self.console.is_terminal or not os.isatty(0):
            return False
        if self._live is not None:
            self._live.sign(text)
        else:
            self.console.say(text, end="")
        return True

    def refusal(self, error: PpError) -> None:
        """Why something that was asked for is not done, while the run goes on. Also with `quiet`."""
        self.settle()
        text = f"refused: {error.what}"
        if self._live is not None:
            self._live.line(self._fitted(text))
        else:
            self.console.say(escape(text))

    def error(self, error: PpError) -> None:
        """What happened, what to do, and the last log lines where they help. Also with `quiet`."""
        self.finish()
        for text in describe_error(error):
            self.console.say(escape(self._fitted(text)))
        if self.debug and error.__traceback__ is not None:
            # Loaded only here: it brings a library of syntax colours along.
            from rich.traceback import Traceback

            with suppress(OSError):
                self.console.print(Traceback.from_exception(type(error), error, error.__traceback__))

    def run_directory(self, directory: Path) -> None:
        """What reads the directory of a run that failed, in one piece to copy. Also with `quiet`."""
        self.finish()
        self.console.say(escape(f"to see what happened: pp-smoke-run report {shlex.quote(str(directory))}"))

    # ---- the display of a run

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        """Show the run that begins with RunBegan: as a picture that changes where the terminal can, else as a line now
        and then. `finish` ends it. What a stage saw is not shown: it is of the past, or the orchestrator tells it too.
        """
        if seen is not None:
            return
        self.run_failed = self.run_failed or isinstance(event, ErrorSeen)
        if isinstance(event, RunBegan):
            if not self.quiet and self._live is None and self._plain is None:
                self._begin(event)
            return
        display = self._live or self._plain
        if display is not None:
            display.happened(event)

    def finish(self) -> None:
        """Leave the display's last picture standing; from now on there are only lines."""
        self.settle()
        display, self._live, self._plain = self._live or self._plain, None, None
        if display is not None:
            display.finish()

    @property
    def text_display(self) -> LiveDisplay | None:
        """Who has to write the generated text, since its display is on the terminal that the text goes to."""
        return self._live if self._live is not None and _same_terminal() else None

    def typed(self) -> None:
        """Somebody ended a line at the keyboard."""
        if self._live is not None:
            self._live.typed()

    def _begin(self, run: RunBegan) -> None:
        # Loaded only here: what shows no run needs none of it.
        from ppsmoke.display.live import LiveDisplay, PlainDisplay

        self.settle()
        if self._moves:
            self._live = LiveDisplay(run, self.console, 2)
            self._live.start()
        else:
            self._plain = PlainDisplay(run, self.line, decoding=not _same_place())
            self._plain.start()

    @property
    def _moves(self) -> bool:
        return moves(os.environ) and os.isatty(2)

    def _fitted(self, text: str) -> str:
        return wrap(text, self.console.width) if self.console.is_terminal else text


def _same_terminal() -> bool:
    try:
        return os.isatty(1) and os.isatty(2) and os.fstat(1).st_rdev == os.fstat(2).st_rdev
    except OSError:
        return False


def _same_place() -> bool:
    """Whether text and news come out together."""
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:
        return False


class TerminalLog(logging.Handler):
    """Warnings of the parts below, and of asyncio, as lines of news; a traceback only with --debug, and what its record
    calls `expected`.

    What connections do once a run has failed is the failure's shadow: it is in the run's records, and would stand above
    the reason here.
    """

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if self._terminal.run_failed and not self._terminal.debug and record.name.startswith(_CONNECTIONS):
            return
        expected = getattr(record, "expected", False)
        if expected or (record.exc_info and self._terminal.debug):
            self._terminal.detail(self.format(record))
        else:
            why = f": {record.exc_info[1]}" if record.exc_info else ""
            self._terminal.line(f"{record.getMessage()}{why}")
