"""Length-prefixed frames cut from a byte stream. Pure.

A frame on the wire is a big-endian u32 length and that many bytes. The length is checked against the reader's limit
before anything is kept for it, so a hostile length is an error and never an allocation.
"""

from __future__ import annotations

PREFIX_BYTES = 4
READ_BYTES = 131072
"""Most bytes one read takes: one wake-up then brings in everything that has arrived in normal operation."""
PIECE_BYTES = 1 << 20
"""Most bytes one write or one exact read moves: a blocked 64 MB write would hold two more copies of it."""


class FrameError(Exception):
    """The bytes are not frames this reader accepts; the message says why."""


class FrameCutter:
    """Collects bytes with `feed` and gives whole frames with `take`.

    `max_frame`: most bytes a frame may have; may be changed between frames.
    """

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self._head = b""
        self._offset = 0
        self._tail: list[bytes] = []
        self._have = 0

    def feed(self, data: bytes) -> None:
        if self._have == 0:
            self._head, self._offset = data, 0
        else:
            self._tail.append(data)
        self._have += len(data)

    def take(self) -> bytes | None:
        """The next whole frame, or None when more bytes are needed; raises FrameError for a length over the limit."""
        size = self._size()
        if size is None or self._have < PREFIX_BYTES + size:
            return None
        start = self._offset + PREFIX_BYTES
        if self._tail and self._have == PREFIX_BYTES + size:  # a big frame and nothing behind it: one copy
            frame = b"".join([memoryview(self._head)[start:], *self._tail])
            self._head, self._offset, self._have = b"", 0, 0
            self._tail.clear()
            return frame
        self._gather(PREFIX_BYTES + size)
        start = self._offset + PREFIX_BYTES
        frame = self._head[start : start + size]
        self._offset = start + size
        self._have -= PREFIX_BYTES + size
        if self._offset == len(self._head):
            self._head, self._offset = b"", 0
            if self._tail:
                self._head = self._tail.pop(0)
        return frame

    @property
    def missing(self) -> int:
        """Bytes still to come for the frame that has begun; 0 when no frame has begun or its length is not known."""
        size = self._size()
        return 0 if size is None else max(0, PREFIX_BYTES + size - self._have)

    @property
    def pending(self) -> int:
        """Bytes held that no `take` has returned yet."""
        return self._have

    def _size(self) -> int | None:
        if self._have < PREFIX_BYTES:
            return None
        self._gather(PREFIX_BYTES)
        size = int.from_bytes(self._head[self._offset : self._offset + PREFIX_BYTES], "big")
        if size > self.max_frame:
            raise FrameError(f"a frame of {size} bytes was announced where at most {self.max_frame} are allowed")
        return size

    def _gather(self, count: int) -> None:
        """Make the next `count` bytes contiguous in `_head`; the caller knows that they are there."""
        if len(self._head) - self._offset >= count:
            return
        self._head = b"".join([self._head[self._offset :], *self._tail])
        self._offset = 0
        self._tail.clear()


def feed(cutter: FrameCutter, data: bytes) -> bool:
    """Give `cutter` what a read brought; False when that was the stream's orderly end. Raises FrameError."""
    if data:
        cutter.feed(data)
    elif cutter.pending:
        raise FrameError("the stream ended in the middle of a frame")
    return bool(data)


def frame_pieces(head: bytes, payload: bytes = b"") -> list[bytes]:
    """One frame of `head` + `payload` as the writes to make: a small frame in one, a big one in pieces."""
    prefix = (len(head) + len(payload)).to_bytes(PREFIX_BYTES, "big")
    if PREFIX_BYTES + len(head) + len(payload) <= PIECE_BYTES:
        return [b"".join((prefix, head, payload))]
    first = PIECE_BYTES - PREFIX_BYTES - len(head)
    return [prefix + head + payload[:first]] + [
        payload[start : start + PIECE_BYTES] for start in range(first, len(payload), PIECE_BYTES)
    ]
