"""Step frames over a blocking stream socket: both ends of the way between a node and its worker."""

from __future__ import annotations

import socket

from ppsmoke.step_frames import Head, decode_head
from ppsmoke.worker_protocol import FRAME_HEADER

_AHEAD_BYTES = 65536


class StepSocket:
    """One thread at a time sends or receives; `shut` may come from any other and ends both for good.

    `payload_limit`: most bytes of payload a frame may bring.
    Raises OSError where the other end is gone, TimeoutError (see `deadline`), MalformedRequest for what is no frame.
    """

    def __init__(self, sock: socket.socket, payload_limit: int = 2**32 - 1) -> None:
        self.payload_limit = payload_limit
        self._socket = sock
        self._ahead = bytearray(_AHEAD_BYTES)
        self._view = memoryview(self._ahead)
        self._start = self._end = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def deadline(self, seconds: float | None) -> None:
        """How long each following call may find the other end idle; None is for ever."""
        self._socket.settimeout(seconds)

    def send(self, head: bytes, payload: bytes | memoryview) -> None:
        """One frame in one write, as far as the socket takes it at once."""
        rest = memoryview(payload).cast("B")
        sent = self._socket.sendmsg((head, rest)) - len(head)
        if sent < 0:
            self._socket.sendall(head[sent:])
            sent = 0
        if sent < len(rest):
            self._socket.sendall(rest[sent:])

    def receive(self) -> tuple[Head, bytes, bytes] | None:
        """(header, request id, payload) of the next frame; None when the other end has closed between two frames."""
        header = self._take(FRAME_HEADER.size)
        if header is None:
            return None
        head = decode_head(header, self.payload_limit)
        raw_id = self._take(head.id_bytes)
        payload = self._take(head.payload_bytes)
        if raw_id is None or payload is None:
            raise ConnectionResetError("the socket ended in the middle of a frame")
        return head, raw_id, payload

    @property
    def pending(self) -> bool:
        """Whether bytes of a further frame were read already."""
        return self._start != self._end

    def shut(self) -> None:
        """End all that waits here, in both processes."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()

    def _take(self, count: int) -> bytes | None:
        """The next `count` bytes; None when the socket ends before the first of them."""
        if count > _AHEAD_BYTES:
            return self._take_big(count)
        if self._end - self._start < count:
            if self._start:
                self._ahead[: self._end - self._start] = self._ahead[self._start : self._end]
                self._start, self._end = 0, self._end - self._start
            while self._end < count:
                got = self._socket.recv_into(self._view[self._end :])
                if not got:
                    if self._end:
                        raise ConnectionResetError("the socket ended in the middle of a frame")
                    return None
                self._end += got
        taken = bytes(self._view[self._start : self._start + count])
        self._start += count
        if self._start == self._end:
            self._start = self._end = 0
        return taken

    def _take_big(self, count: int) -> bytes:
        """As `_take`, past the buffer, so that big rows are copied once."""
        whole = bytearray(count)
        view = memoryview(whole)
        have = self._end - self._start
        view[:have] = self._view[self._start : self._end]
        self._start = self._end = 0
        while have < count:
            got = self._socket.recv_into(view[have:])
            if not got:
                raise ConnectionResetError("the socket ended in the middle of a frame")
            have += got
        return bytes(whole)
