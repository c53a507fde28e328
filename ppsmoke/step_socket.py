"""Step frames over a blocking stream socket: both ends of the way between a node and its worker."""

from __future__ import annotations

import socket

from ppsmoke.errors import MalformedRequest
from ppsmoke.step_frames import REPLY, REQUEST, Reply, decode_reply_head, request_payload_bytes

_AHEAD_BYTES = 65536


class StepSocket:
    """One thread at a time sends or receives; `shut` may come from any other and ends both for good.

    `payload_limit`: most bytes of payload a frame may bring.
    Raises OSError where the other end is gone, TimeoutError (see `deadline`), MalformedRequest for what is no frame.
    A frame is taken off the socket by one call, if it is small and has come whole; at most one is on its way.
    """

    def __init__(self, sock: socket.socket, payload_limit: int = 2**32 - 1) -> None:
        self.payload_limit = payload_limit
        self._socket = sock
        self._view = memoryview(bytearray(_AHEAD_BYTES))
        self._deadline_s: float | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def deadline(self, seconds: float) -> None:
        """How long each following call may find the other end idle."""
        if seconds != self._deadline_s:
            self._socket.settimeout(seconds)
            self._deadline_s = seconds

    def send(self, head: bytes, payload: bytes | memoryview) -> None:
        """One frame in one write, as far as the socket takes it at once."""
        sent = self._socket.sendmsg((head, payload))
        if sent != len(head) + len(payload):
            self._socket.sendall(memoryview(b"".join((head, payload)))[sent:])

    def receive_request(self) -> tuple[memoryview, bytes] | None:
        """(head, payload) of a request, the head only until the next call; None when the other end has closed."""
        have = self._receive(REQUEST.size)
        if not have:
            return None
        head = self._view[: REQUEST.size]
        return head, self._payload(REQUEST.size, have, request_payload_bytes(head))

    def receive_reply(self) -> Reply | None:
        """None when the other end has closed."""
        have = self._receive(REPLY.size)
        if not have:
            return None
        kind, size, began, done = decode_reply_head(self._view[: REPLY.size])
        return Reply(kind, began, done, self._payload(REPLY.size, have, size))

    def shut(self) -> None:
        """End all that waits here, in both processes."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()

    def _receive(self, least: int) -> int:
        """Read `least` bytes or more to the front of the buffer; returns how many, 0 at the end."""
        have = self._socket.recv_into(self._view)
        while 0 < have < least:
            got = self._socket.recv_into(self._view[have:])
            if not got:
                raise ConnectionResetError("the socket ended in the middle of a frame")
            have += got
        return have

    def _payload(self, start: int, have: int, size: int) -> bytes:
        """The payload behind the head of `start` bytes, of which the buffer has the beginning."""
        if have == start + size:
            return bytes(self._view[start:have])
        if size > self.payload_limit:
            raise MalformedRequest(f"a step frame of {size} bytes is over the limit of {self.payload_limit}")
        if have > start + size:
            raise MalformedRequest("a step frame came before the one before it was answered")
        whole = bytearray(size)
        view = memoryview(whole)
        have -= start
        view[:have] = self._view[start : start + have]
        while have < size:
            got = self._socket.recv_into(view[have:])
            if not got:
                raise ConnectionResetError("the socket ended in the middle of a frame")
            have += got
        return bytes(whole)
