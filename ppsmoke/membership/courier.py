"""Membership's messages on one connection: datagrams, and one stream each way for what must arrive.

The streams are unidirectional ones, which nothing else of this program uses, so that membership neither waits for the
control stream nor for the loop that serves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport.closing import CloseCode, peer_close
from ppsmoke.transport.framing import FrameCutter, FrameError, frame_pieces
from ppsmoke.transport.path import Path, path_of
from ppsmoke.waiting import wait_for

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1 << 16
"""Of one message on the stream. Datagrams are bounded by the path, at about 1160 bytes at first."""
MAX_WAITING = 64
"""Messages kept for a stream whose peer does not read; after that the oldest gives way, which a protocol that repeats
itself survives and a reader that never comes back must not turn into memory."""
_READ_BYTES = 16384
_REOPEN_S = 0.2

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class Courier:
    """All in one event loop, which need not be the one that made the connection.

    `received(courier, data)` gets each message; `complained(courier, reason, text)` what is no message at all;
    `ended(courier, left)` is called when the peer has closed the connection, unless our own side, which knows more, was
    quicker to close it; `left`: with a goodbye.
    """

    def __init__(
        self,
        peer: str,
        connection: Any,
        *,
        received: Callable[[Courier, bytes], None],
        complained: Callable[[Courier, str, str], None],
        ended: Callable[[Courier, bool], None],
    ) -> None:
        self.peer = peer
        self.connection = connection
        self._received = received
        self._complained = complained
        self._ended = ended
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._spawn: Spawn | None = None

    def start(self, spawn: Spawn, name: str) -> None:
        """Begin to send and to receive. `name`: of the peer, for logs."""
        self._spawn = spawn
        self._tasks = [
            spawn(self._read_datagrams(), f"membership datagrams from {name}"),
            spawn(self._accept_streams(name), f"membership streams from {name}"),
            spawn(self._write(name), f"membership stream to {name}"),
        ]

    def stop(self) -> None:
        """No more is sent or received; the connection stays."""
        for task in [*self._tasks, *([self._reading] if self._reading else [])]:
            task.cancel()

    def send(self, data: bytes, *, reliable: bool) -> None:
        """As a datagram if it fits and may be lost, else on the stream. Never waits."""
        if not reliable and self._as_datagram(data):
            return
        self._waiting.append(data)
        self._idle.clear()
        self._more.set()

    async def flush(self, deadline_s: float) -> None:
        """Return when the transport has taken what waits for the stream, or the time is up."""
        with suppress(TimeoutError):
            await wait_for(self._idle.wait(), deadline_s)

    def path(self) -> Path | None:
        """The path in use; None when there is none just now."""
        return path_of(self.connection)

    def _as_datagram(self, data: bytes) -> bool:
        try:
            self.connection.send_datagram(data)
        except IROH_ERRORS:
            return False  # too long for the path; or the connection is over, which the readers see
        return True

    async def _read_datagrams(self) -> None:
        while True:
            try:
                data = await self.connection.read_datagram()
            except IROH_ERRORS:
                break
            self._received(self, data)
        if (closed := peer_close(self.connection.close_reason())) is not None:
            self._ended(self, closed.code == CloseCode.LEFT)

    async def _accept_streams(self, name: str) -> None:
        assert self._spawn is not None
        while True:
            try:
                stream = await self.connection.accept_uni()
            except IROH_ERRORS:
                return  # the reader of the datagrams sees the same
            if self._reading is not None:
                self._reading.cancel()  # a peer opens another one when the one before has failed
            self._reading = self._spawn(self._read_stream(stream), f"membership stream from {name}")

    async def _read_stream(self, stream: Any) -> None:
        cutter = FrameCutter(MAX_MESSAGE_BYTES)
        try:
            while data := await stream.read(_READ_BYTES):
                cutter.feed(data)
                while (frame := cutter.take()) is not None:
                    self._received(self, frame)
        except FrameError as error:
            self._complained(self, "stream", str(error))
            with suppress(*IROH_ERRORS):
                await stream.stop(int(CloseCode.PROTOCOL))
        except IROH_ERRORS as error:
            log.debug("membership stream: %s", iroh_text(error))

    async def _write(self, name: str) -> None:
        stream: Any = None
        while True:
            await self._more.wait()
            try:
                if stream is None:
                    stream = await self.connection.open_uni()
                while self._waiting:
                    data = self._waiting.popleft()
                    try:
                        await stream.write_all(*frame_pieces(data))
                    except IROH_ERRORS:
                        self._waiting.appendleft(data)
                        raise
            except IROH_ERRORS as error:
                log.debug("membership stream to %s: %s", name, iroh_text(error))
                if self.connection.close_reason() is not None:
                    return  # the reader of the datagrams says so
                stream = None
                await asyncio.sleep(_REOPEN_S)
                continue
            self._more.clear()
            self._idle.set()
