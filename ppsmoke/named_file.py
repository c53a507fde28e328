"""Reads and writes files that the user names: they may be pipes, whose other end is not waited for for ever."""

from __future__ import annotations

import errno
import os
import select
import time
from pathlib import Path

PATIENCE_S = 30.0
"""Where nothing else is asked for. In `--config <(...)` somebody may have to type a password first."""
_PIECE = 1 << 16


def read_named(path: Path, *, most: int, patience_s: float | None = None) -> bytes:
    """What the file has, up to `most` bytes. `patience_s`: the longest silence of a pipe or a terminal.

    Raises OSError, which is TimeoutError where nothing came for so long.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return _read(descriptor, most, PATIENCE_S if patience_s is None else patience_s)
    finally:
        os.close(descriptor)


def write_named(path: Path, text: str, *, patience_s: float | None = None) -> None:
    """Replace what the file has by `text`, in UTF-8. `patience_s`: how long a pipe may be without a reader.

    Raises OSError, which is TimeoutError where nobody reads.
    """
    with os.fdopen(
        _opened_for_writing(path, PATIENCE_S if patience_s is None else patience_s), "w", encoding="utf-8"
    ) as file:
        file.write(text)


def _read(descriptor: int, most: int, patience_s: float) -> bytes:
    """A pipe that nobody has opened to write reads as ended, so it is first waited for; a file is always ready."""
    pieces, length = [], 0
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while length < most:
        if not ready.poll(patience_s * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came out of it for {patience_s:g} s")
        try:
            piece = os.read(descriptor, min(_PIECE, most - length))
        except BlockingIOError:
            continue
        if not piece:
            break
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def _opened_for_writing(path: Path, patience_s: float) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY
    ends = time.monotonic() + patience_s
    while True:
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not path.is_fifo():
                raise
            if time.monotonic() >= ends:
                raise TimeoutError(errno.ETIMEDOUT, f"nobody reads this pipe, for {patience_s:g} s") from None
            time.sleep(0.05)
    os.set_blocking(descriptor, True)
    return descriptor
