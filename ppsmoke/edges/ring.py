"""The bounded buffer at each end of an edge: full means the writer waits, nothing is ever dropped."""

from __future__ import annotations

import asyncio
from collections import deque

from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import RingSpec
from ppsmoke.objects import StreamObject


class Ring:
    """First in, first out, bounded by objects and by payload bytes; one writer task and one reader task.

    `peak_objects` and `peak_bytes` are the most it ever held.
    """

    def __init__(self, spec: RingSpec) -> None:
        self.spec = spec
        self.peak_objects = 0
        self.peak_bytes = 0
        self._objects: deque[StreamObject] = deque()
        self._bytes = 0
        self._ended = False
        self._error: EdgeFaulted | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def nbytes(self) -> int:
        """Payload bytes held."""
        return self._bytes

    async def put(self, obj: StreamObject) -> None:
        """Add an object, waiting while it does not fit.

        Raises the error the ring was closed with, and EdgeFaulted for an object that can never fit.
        """
        size = len(obj.payload)
        if size > self.spec.max_bytes:
            raise EdgeFaulted(f"{obj.describe()} has {size} bytes, more than the ring of {self.spec.max_bytes}")
        while self._error is None and not self._fits(size):
            await self._change()
        if self._error is not None:
            raise self._error
        if self._ended:
            raise EdgeFaulted(f"{obj.describe()} was written after the end")
        self._objects.append(obj)
        self._bytes += size
        self.peak_objects = max(self.peak_objects, len(self._objects))
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        self._wake()

    async def get(self) -> StreamObject | None:
        """The oldest object, waiting for one; None when the ring has ended and is empty.

        Raises the error the ring was closed with. A cancelled call takes nothing.
        """
        while self._error is None and not self._objects and not self._ended:
            await self._change()
        if self._error is not None:
            raise self._error
        if not self._objects:
            return None
        obj = self._objects.popleft()
        self._bytes -= len(obj.payload)
        self._wake()
        return obj

    def end(self) -> None:
        """Nothing more will be put; what is in it can still be taken."""
        self._ended = True
        self._wake()

    def close(self, error: EdgeFaulted) -> None:
        """Drop what is in it; every call from now on raises `error`. The first close wins."""
        if self._error is None:
            self._error = error
            self._objects.clear()
            self._bytes = 0
            self._wake()

    def _fits(self, size: int) -> bool:
        return len(self._objects) < self.spec.max_objects and self._bytes + size <= self.spec.max_bytes

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
