"""Yes or no from the person at the terminal. The question goes to standard error: standard output is for results."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

_MOST_BYTES = 4096


def can_ask() -> bool:
    """Whether somebody reads the question and may answer."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:  # closed
        return False


async def ask(question: str) -> bool:
    """Whether the answer is yes; anything else, an end of the input included, is a no. Waits without blocking."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = b""
    try:
        answer = await _line()
    finally:  # a signal may end the wait, too: what is said next gets a line of its own
        if not answer.endswith(b"\n"):
            with suppress(OSError):
                print(file=sys.stderr)
    return answer.strip().lower() in (b"y", b"yes")


async def _line() -> bytes:
    """What was typed, up to the end of the line or of the input."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    typed = bytearray()
    done: asyncio.Future[bytes] = loop.create_future()

    def readable() -> None:
        try:
            piece = os.read(terminal, _MOST_BYTES)
        except OSError:  # the terminal went away
            piece = b""
        typed.extend(piece)
        if (not piece or b"\n" in typed or len(typed) > _MOST_BYTES) and not done.done():
            done.set_result(bytes(typed))

    loop.add_reader(terminal, readable)
    try:
        return await done
    finally:
        loop.remove_reader(terminal)
