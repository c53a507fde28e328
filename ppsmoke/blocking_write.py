"""Writes all of some bytes, however slow the reader is."""

from __future__ import annotations

import os
import select


def write_all(fd: int, data: bytes) -> None:
    """Waits where the reader is slow, also when somebody made the descriptor non-blocking. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
