"""What a person sees on standard error while a run goes on. Standard output belongs to the generated text."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from ppsmoke.errors import PpError
from ppsmoke.wording import describe_error, wrap


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
    """Lines on stderr, and on a terminal one moving line that says what is waited for.

    `quiet` keeps everything but errors away; `debug` adds every detail line.
    """

    def __init__(self, *, quiet: bool = False, debug: bool = False) -> None:
        self.console = _Stderr()
        self.quiet = quiet
        self.debug = debug
        self._status: Status | None = None
        self._started = time.monotonic()

    def line(self, text: str) -> None:
        """One line of news; on a terminal a longer one breaks between words."""
        if not self.quiet:
            self.console.say(escape(self._fitted(text)))

    def detail(self, text: str) -> None:
        """A line for --debug, with the seconds since start."""
        if self.debug:
            self.console.say(f"[dim]{time.monotonic() - self._started:7.2f} {escape(text)}[/dim]")

    def waiting(self, text: str) -> None:
        """What is waited for now; moves on a terminal, silent elsewhere."""
        if self.quiet or not self.console.is_terminal:
            return
        # One line and no more: a wrapped line could not be taken back.
        text = text[: max(10, self.console.width - 4)]
        if self._status is None:
            self._status = self.console.status(escape(text), spinner="dots")
            self._status.start()
        else:
            self._status.update(escape(text))

    def settle(self) -> None:
        """Take the moving line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def sign(self, text: str) -> bool:
        """Show `text` to somebody who is about to type, without ending the line; False where nobody is."""
        if self.quiet or not self.console.is_terminal or not os.isatty(0):
            return False
        self.console.say(text, end="")
        return True

    def refusal(self, error: PpError) -> None:
        """Why something that was asked for is not done, while the run goes on. Also with `quiet`."""
        self.settle()
        self.console.say(escape(f"refused: {error.what}"))

    def error(self, error: PpError) -> None:
        """What happened, what to do, and the last log lines where they help. Also with `quiet`."""
        self.settle()
        for text in describe_error(error):
            self.console.say(escape(self._fitted(text)))
        if self.debug and error.__traceback__ is not None:
            # Loaded only here: it brings a library of syntax colours along.
            from rich.traceback import Traceback

            with suppress(OSError):
                self.console.print(Traceback.from_exception(type(error), error, error.__traceback__))

    def bundle(self, directory: Path) -> None:
        """Where all that is known of a run that failed lies, in one piece to copy. Also with `quiet`."""
        self.settle()
        self.console.say(escape(f"bundle: {directory}"))

    def _fitted(self, text: str) -> str:
        return wrap(text, self.console.width) if self.console.is_terminal else text


class TerminalLog(logging.Handler):
    """Warnings of the parts below, and of asyncio, as lines of news; a traceback only with --debug."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and self._terminal.debug:
            self._terminal.detail(self.format(record))
        else:
            why = f": {record.exc_info[1]}" if record.exc_info else ""
            self._terminal.line(f"{record.getMessage()}{why}")
