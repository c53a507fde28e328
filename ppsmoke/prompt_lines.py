"""Lines of standard input, one when asked for, without ever holding up the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from ppsmoke.errors import EnvironmentFault, PpError, PromptTooLong, UsageError

_Read = TypeVar("_Read")

MOST_BYTES = 1 << 20
"""Of a line. No context takes as much text, and whoever sends no line's end must not fill the memory."""
_PIECE = 1 << 16
_HANGUP_S = 0.5


class PromptLines(Generic[_Read]):
    """A thread that may wait for input for ever: a daemon, so that it never keeps the process alive.

    `parse` makes of a line, without its end, what `next` gives; it is called in the thread and may raise PpError.
    """

    def __init__(self, parse: Callable[[str], _Read], *, file: int = 0) -> None:
        self._parse = parse
        self._file = file
        self._read = bytearray()
        self._ended = False
        self._asked: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Future[_Read | PpError | None]]] = (
            queue.Queue()
        )
        threading.Thread(target=self._work, name="stdin", daemon=True).start()

    async def next(self) -> _Read | PpError | None:
        """What the next line comes to; why it is refused, where `parse` did, or it is too long or no UTF-8; None at the
        end of the input. Raises EnvironmentFault where nothing can be read any more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Read | PpError | None] = loop.create_future()
        self._asked.put((loop, answer))
        return await answer

    def _work(self) -> None:
        while True:
            loop, answer = self._asked.get()
            try:
                found: _Read | PpError | None = self._next()
                failed: Exception | None = None
            except Exception as error:
                found, failed = None, error
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, answer, found, failed)

    def _next(self) -> _Read | PpError | None:
        try:
            line = self._next_line()
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal was closed, and the signal that says so is on its way
                time.sleep(_HANGUP_S)
            raise EnvironmentFault(
                f"standard input cannot be read: {error.strerror}", phase="waiting for a prompt"
            ) from None
        except PromptTooLong as error:
            return error
        if line is None:
            return None
        try:
            return self._parse(line.decode())
        except UnicodeDecodeError as error:
            return UsageError(f"the line is not UTF-8 text: {error.reason} at byte {error.start}")
        except PpError as error:
            return error

    def _next_line(self) -> bytes | None:
        """Without its end; the last one may have none. Raises PromptTooLong after skipping a line, OSError."""
        skipping = False
        while True:
            end = self._read.find(b"\n")
            if end >= 0 or (self._ended and self._read):
                line = bytes(self._read[: end if end >= 0 else None])
                del self._read[: len(line) + 1]
                if skipping or len(line) > MOST_BYTES:
                    raise PromptTooLong(f"the line has more than {MOST_BYTES} bytes")
                return line.removesuffix(b"\r")
            if self._ended:
                if skipping:
                    raise PromptTooLong(f"the line has more than {MOST_BYTES} bytes")
                return None
            if len(self._read) > MOST_BYTES:
                skipping = True
                self._read.clear()
            piece = _read(self._file)
            self._ended = not piece
            self._read += piece


def _read(file: int) -> bytes:
    """What is there; waits for something, also where somebody made the input non-blocking. Empty at the end."""
    while True:
        try:
            return os.read(file, _PIECE)
        except BlockingIOError:
            select.select([file], [], [])


def _settle(
    answer: asyncio.Future[_Read | PpError | None], found: _Read | PpError | None, failed: Exception | None
) -> None:
    if answer.done():
        return
    if failed is not None:
        answer.set_exception(failed)
    else:
        answer.set_result(found)
