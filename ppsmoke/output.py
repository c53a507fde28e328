"""The generated text on its way to standard output, without ever holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from contextlib import suppress
from typing import Protocol

from ppsmoke.blocking_write import write_all
from ppsmoke.errors import EnvironmentFault, PpError
from ppsmoke.orchestrator.options import OutputGone
from ppsmoke.run_events import NoteMade, RunEvent, Seen
from ppsmoke.terminal import Terminal


class Recorder(Protocol):
    """Who keeps what happens in a run. Never raises, never waits."""

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None: ...


class RunOutput:
    """The run's view: news to the terminal, text to standard output (nowhere when `stream` is False), and everything to
    the `recorder`."""

    def __init__(self, terminal: Terminal, *, stream: bool, recorder: Recorder | None = None) -> None:
        self._terminal = terminal
        self._recorder = recorder
        self._stream = stream
        self._writer = _StdoutWriter() if stream else None
        self._wrote = ""
        self._asking = False
        self._sign = ""  # of a prompt that is awaited, also where news hides it

    def line(self, text: str) -> None:
        self._break_text()
        self._terminal.line(text)
        self.happened(NoteMade(text))

    def detail(self, text: str) -> None:
        self._terminal.detail(text)
        self.happened(NoteMade(text, "detail"))

    def waiting(self, text: str) -> None:
        self._terminal.waiting(text)

    def settle(self) -> None:
        self._terminal.settle()

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        """To whoever watches the run, and to whoever records it."""
        self._terminal.happened(event, seen)
        if self._recorder is not None:
            self._recorder.happened(event, seen)

    async def text(self, piece: str) -> None:
        """Write and flush; waits for a slow reader. Raises OutputGone when there is none any more, EnvironmentFault
        when the text cannot be written (a full disk)."""
        if self._stream and self._writer is not None:
            await self._put(self._writer, piece)
            self._wrote = piece

    async def whole_line(self, text: str) -> None:
        """Write a line of its own, or the end of the text's line: also without a stream. Raises as `text` does."""
        if self._writer is None:
            self._writer = _StdoutWriter()
        await self._put(self._writer, f"{text}\n")
        self._wrote = ""

    @property
    def has_lines(self) -> bool:
        """Whether `whole_line` wrote, in place of a stream, what nothing else may get between."""
        return not self._stream and self._writer is not None

    def ask(self, sign: str) -> None:
        """Where somebody sits at a terminal: show that a prompt is awaited."""
        self._sign = sign
        self._terminal.settle()
        if self._terminal.sign(sign):
            self._asking = True

    def ask_again(self) -> None:
        """Show the sign once more, if news hid that of a prompt that is still awaited."""
        if self._sign and not self._asking:
            self.ask(self._sign)

    def heard(self) -> None:
        """A line was typed, which ended the sign's."""
        self._sign = ""
        if self._asking:
            self._terminal.typed()
        self._asking = False

    def refuse(self, error: PpError) -> None:
        """Say why a prompt is not served, also with --quiet."""
        self._break_text()
        self._terminal.refusal(error)

    def drain(self) -> None:
        """Wait until the reader has taken all the text, the loop being closed already. Raises as `text` does."""
        if self._writer is not None:
            self._writer.drain()

    def end(self) -> None:
        """The text is complete: on a terminal the prompt must not stick to it."""
        self._break_text()
        self._terminal.finish()

    async def _put(self, writer: _StdoutWriter, text: str) -> None:
        display = self._terminal.text_display
        if display is None:
            await writer.write(text.encode())
            return
        try:
            await display.text(text)
        except OSError as failure:
            raise _unwritable(failure) from failure

    def _break_text(self) -> None:
        if self._terminal.text_display is not None:
            # The display keeps lines of news apart from the text, and from what is being typed.
            self._asking, self._wrote = False, ""
            return
        if self._asking:
            self._terminal.sign("\n")
        self._asking = False
        if self._wrote and not self._wrote.endswith("\n"):
            with suppress(OSError, ValueError):
                # Where both streams go to one place (a terminal, a CI log), news must not stick to the text. Written
                # to stderr where stdout is no terminal: a pipe or file gets the text and nothing else.
                if sys.stdout.isatty():
                    os.write(sys.stdout.fileno(), b"\n")
                elif os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
                    os.write(sys.stderr.fileno(), b"\n")
        self._wrote = ""


class _StdoutWriter:
    """A thread that may block on a full pipe: a daemon, so that it never keeps the process alive."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[bytes, asyncio.AbstractEventLoop, asyncio.Future[None]]] = queue.Queue()
        self._failure: Exception | None = None
        threading.Thread(target=self._work, name="stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._jobs.put((data, loop, done))
        await done

    def drain(self) -> None:
        self._jobs.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            data, loop, done = self._jobs.get()
            error: Exception | None = None
            try:
                write_all(sys.stdout.fileno(), data)
            except BrokenPipeError:
                error = OutputGone()
            except OSError as failure:
                error = _unwritable(failure)
            self._failure = self._failure or error
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, done, error)
            self._jobs.task_done()


def _unwritable(failure: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"standard output cannot be written: {failure.strerror}", phase="output")


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
