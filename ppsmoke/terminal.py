"""What a person sees on standard error while a run goes on. Standard output belongs to the generated text."""

from __future__ import annotations

import logging
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.traceback import Traceback

from ppsmoke.errors import PpError


class _Stderr(Console):
    """A standard error that takes no more (its reader went away, a full disk) falls silent: the run matters more."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True

    def say(self, text: str) -> None:
        try:
            self.print(text)
        except OSError:
            self.quiet = True


_PLAIN_WORD = re.compile(r"[a-z]+('s)?[,:;]?")


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
        """One line of news."""
        if not self.quiet:
            self.console.say(escape(text))

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

    def error(self, error: PpError) -> None:
        """What happened, what to do, and the last log lines where they help. Also with `quiet`."""
        self.settle()
        for text in describe_error(error):
            self.console.say(escape(wrap(text, self.console.width) if self.console.is_terminal else text))
        if self.debug and error.__traceback__ is not None:
            with suppress(OSError):
                self.console.print(Traceback.from_exception(type(error), error, error.__traceback__))


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


def describe_error(error: PpError) -> list[str]:
    """The lines an error prints: one sentence on what happened, one on what to do, then its log lines."""
    where = f" (phase: {error.phase})" if error.phase and error.phase not in error.what else ""
    lines = [f"error: {sentence(error.what)}{where}"]
    if error.remedy:
        lines.append(f"  fix: {sentence(error.remedy)}")
    if error.log_tail:
        lines.append(f"  last log lines{f' of stage {error.stage}' if error.stage is not None else ''}:")
        lines += [f"    | {line}" for line in error.log_tail]
    return lines


def sentence(text: str) -> str:
    """As a line of its own: a plain word begins with a capital (a path, an address or a name stays as it is), and the
    last full stop goes."""
    text = text.removesuffix(".") if not text.endswith("..") else text
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if _PLAIN_WORD.fullmatch(first) else text


def wrap(text: str, width: int) -> str:
    """At the spaces, later lines set in; a path or an address stays in one piece, so that it can be copied."""
    return textwrap.fill(text, width, subsequent_indent="       ", break_long_words=False, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]], right: Callable[[int], bool] = lambda _column: False) -> list[str]:
    """Rows as aligned text, two spaces between columns; `right` tells which columns align right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(w) if right(i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def size(count: float) -> str:
    """Bytes in words: 96.6 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def short_path(path: Path) -> str:
    """The path, with ~ for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
