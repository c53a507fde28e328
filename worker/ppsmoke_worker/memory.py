"""Zeroed memory for the C kernels, outside of Python's and tinygrad's heaps."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

_HUGE_PAGE = 2 << 20


class Region:
    """Pages that exist once they are touched. `huge`: with large pages where the system has them, for what is
    read from end to end: with small ones the processor's prefetching stops at every 4 KB, for a third of its speed."""

    def __init__(self, nbytes: int, *, huge: bool = False) -> None:
        size = -(-max(nbytes, 1) // _HUGE_PAGE) * _HUGE_PAGE + _HUGE_PAGE if huge else max(nbytes, 1)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = np.frombuffer(self._map, np.uint8)
        skipped = 0
        if huge:
            skipped = -int(whole.ctypes.data) % _HUGE_PAGE
            # Some systems have none, or refuse them to everybody.
            with contextlib.suppress(AttributeError, OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.bytes: NDArray[np.uint8] = whole[skipped : skipped + nbytes]
        self.address = int(self.bytes.ctypes.data)
