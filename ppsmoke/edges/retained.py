"""What a producer keeps of what it has sent, until the consumer has taken it. Pure.

It is bounded by itself: the consumer acknowledges every few objects, and the transport's window bounds what it has not
taken yet. Where neither holds the oldest objects are let go, and the edge can no longer be resumed from there.
"""

from __future__ import annotations

from collections import deque

MAX_BYTES = 32 << 20
ACK_OBJECTS = 16
ACK_BYTES = 256 << 10
"""A consumer acknowledges when it has taken so much since it last did."""

Sent = tuple[bytes, bytes]
"""An object's header and its payload."""


class Retained:
    """Objects by number, from `first` up to, and without, `next`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.first = 0
        self.next = 0
        self._max_bytes = max_bytes
        self._objects: deque[Sent] = deque()
        self.nbytes = 0

    def add(self, head: bytes, payload: bytes) -> None:
        """Object number `next` is about to be sent."""
        self._objects.append((head, payload))
        self.nbytes += len(payload)
        self.next += 1
        if self.nbytes > self._max_bytes:
            while self.nbytes > self._max_bytes and len(self._objects) > 1:
                self._forget_oldest()

    def taken(self, count: int) -> bool:
        """The consumer has taken all before number `count`; False when that cannot be."""
        if count > self.next:
            return False
        while self.first < count:
            self._forget_oldest()
        return True

    def since(self, number: int) -> list[Sent]:
        """What follows, from object `number` on, which must not have been forgotten."""
        assert number >= self.first, "forgotten"
        return list(self._objects)[number - self.first :]

    def _forget_oldest(self) -> None:
        _, payload = self._objects.popleft()
        self.nbytes -= len(payload)
        self.first += 1
