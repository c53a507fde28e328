"""One live connection to one peer: its control stream, its outbox, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ppsmoke.errors import LinkBroken, PeerLost, PpError
from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport.closing import CloseCode, loss_text, may_be_had_again, peer_close
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.path import path_in_use
from ppsmoke.transport.rendezvous import PeerStamp
from ppsmoke.transport.stall import PathCounts, StallWatch
from ppsmoke.transport.stream import FrameStream
from ppsmoke.waiting import wait_for

MAX_CONTROL_BYTES = 1 << 20
_OUTBOX_FRAMES = 256

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class LinkOwner(Protocol):
    """What a link tells its mesh; all calls are made in the event loop."""

    def link_frame(self, link: Link, frame: bytes) -> None:
        """A control frame arrived; raises FrameError when it is not one."""

    def link_stream(self, link: Link, stream: FrameStream) -> None:
        """The peer opened a further stream."""

    def link_ended(self, link: Link, error: PpError) -> None:
        """The link is over; called once."""


PathKind = Literal["direct", "relay", "none"]


@dataclass(frozen=True, slots=True)
class Outage:
    """A connection was lost and another one found: how long nothing passed, in seconds, and what paths they took."""

    stall_s: float
    before: PathKind
    after: PathKind


@dataclass(slots=True)
class _Outgoing:
    frame: bytes
    written: asyncio.Future[PpError | None] | None


class Link:
    """`name` is what people call the peer. `stamp` is the newest handshake record seen from it."""

    def __init__(self, *, peer: str, name: str, connection: Any, control: FrameStream, stamp: PeerStamp) -> None:
        self.peer = peer
        self.name = name
        self.stamp = stamp
        self.down: PpError | None = None
        self._connection = connection
        self._control = control
        self._control.explain = self._explain_now
        self._outbox: asyncio.Queue[_Outgoing] = asyncio.Queue(_OUTBOX_FRAMES)
        self._ended = asyncio.Event()
        self._leaving = False
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: LinkOwner | None = None
        self.stall = StallWatch()
        self.path_kind: PathKind = "none"
        """As of the newest look at its path."""

    def start(self, owner: LinkOwner, spawn: Spawn) -> None:
        """Begin to read, write and accept streams."""
        self._owner = owner
        self._control.cutter.max_frame = MAX_CONTROL_BYTES
        self._tasks = [
            spawn(self._read(), f"read from {self.name}"),
            spawn(self._write(), f"write to {self.name}"),
            spawn(self._accept_streams(), f"streams from {self.name}"),
        ]

    @property
    def connection(self) -> Any:
        return self._connection

    def path_counts(self) -> PathCounts | None:
        """Of the path in use; None when there is none just now."""
        chosen = path_in_use(self._connection)
        if chosen is None:
            return None
        stats = chosen.stats
        self.path_kind = "relay" if chosen.is_relay else "direct"
        return PathCounts(chosen.id, stats.udp_tx_datagrams, stats.udp_rx_datagrams, chosen.rtt_ms / 1000)

    def offer(self, frame: bytes) -> bool:
        """Queue a frame that nobody waits for; False when the outbox is full or the link is over."""
        if self.down is not None or self._leaving or self._outbox.full():
            return False
        self._outbox.put_nowait(_Outgoing(frame, None))
        return True

    async def post(self, frame: bytes) -> None:
        """Write a frame after those before it; returns when the transport has taken it, raises the link's end.

        A cancelled call whose frame was not yet begun sends nothing.
        """
        if self.down is not None:
            raise self.down
        written: asyncio.Future[PpError | None] = asyncio.get_running_loop().create_future()
        await self._outbox.put(_Outgoing(frame, written))
        if self.down is not None:
            raise self.down
        error = await written
        if error is not None:
            raise error

    async def open_stream(self, max_frame: int) -> FrameStream:
        """A new stream to the peer; raises the link's end."""
        try:
            bi = await self._connection.open_bi()
        except IROH_ERRORS as error:
            raise await self.explain(error) from None
        return FrameStream(bi, max_frame=max_frame, explain=self.explain)

    async def leave(self, bye: bytes, reason: str, deadline_s: float) -> bool:
        """Say goodbye in order, after all that was posted, and close when the peer has it or the time is up.

        True when the peer has it, or has closed the link itself.
        """
        delivered = False
        try:
            async with asyncio.timeout(deadline_s):
                await self.post(bye)
                self._leaving = True
                await self._control.finish()
                delivered = await self._control.wait_delivered(deadline_s)
        except (TimeoutError, PpError):
            pass
        over = delivered or self._connection.close_reason() is not None
        self.end(PeerLost(f"the link to {self.name} was closed: {reason}", peer=self.name), CloseCode.LEFT, reason)
        return over

    def end(self, error: PpError, code: CloseCode, reason: str) -> None:
        """Close the connection and stop the tasks. The first call wins; `error` is what later calls raise."""
        if self.down is not None:
            return
        self.down = error
        self._ended.set()
        self._connection.close(int(code), reason.encode()[:512])
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        while not self._outbox.empty():
            waiting = self._outbox.get_nowait().written
            if waiting is not None and not waiting.done():
                waiting.set_result(error)
        if self._owner is not None:
            self._owner.link_ended(self, error)

    async def explain(self, error: BaseException) -> PpError:
        """Why a stream of this link failed: the link's end if it has ended, else what the stream says."""
        if self.down is None and self._connection.close_reason() is not None:
            try:
                await wait_for(self._ended.wait(), 1.0)  # the reader of the control stream knows why
            except TimeoutError:
                return await self._explain_now(error)
        if self.down is not None:
            return self.down
        return await self._explain_now(error)

    async def _explain_now(self, error: BaseException) -> PpError:
        status = self._connection.close_reason()
        if status is None:
            return PeerLost(f"{self.name} broke off a stream ({iroh_text(error)})", peer=self.name)
        closed = peer_close(status)
        if closed is not None and closed.code == CloseCode.SILENT:
            return PeerLost(f"{self.name} gave up on us: {closed.reason}", peer=self.name)
        kind = LinkBroken if may_be_had_again(status) else PeerLost
        return kind(f"the link to {self.name} is lost: {loss_text(status)}", peer=self.name)

    async def _read(self) -> None:
        assert self._owner is not None
        try:
            while self.down is None:
                frame = await self._control.read_frame()
                if frame is None:
                    what = f"the link to {self.name} is lost: it ended its control stream"
                    self.end(PeerLost(what, peer=self.name), CloseCode.PROTOCOL, "control stream ended")
                    return
                self._owner.link_frame(self, frame)
        except FrameError as error:
            what = f"{self.name} sent what this version does not understand: {error}"
            self.end(PeerLost(what, peer=self.name), CloseCode.PROTOCOL, str(error))
        except PpError as error:
            self.end(error, CloseCode.DROPPED, "connection lost")

    async def _write(self) -> None:
        while True:
            outgoing = await self._outbox.get()
            written = outgoing.written
            if written is not None and written.done():
                continue
            failed: PpError | None = None
            try:
                await self._control.write_frame(outgoing.frame)
            except PpError as error:
                failed = self.down or error
            except asyncio.CancelledError:
                if written is not None and not written.done():
                    written.set_result(self.down or PeerLost(f"the link to {self.name} ended", peer=self.name))
                raise
            if written is not None and not written.done():
                written.set_result(failed)
            if failed is not None:
                return  # the reader sees the same end, with its reason

    async def _accept_streams(self) -> None:
        assert self._owner is not None
        while self.down is None:
            try:
                bi = await self._connection.accept_bi()
            except IROH_ERRORS:
                return  # the reader sees the same end, with its reason
            stream = FrameStream(bi, max_frame=MAX_CONTROL_BYTES, explain=self.explain)
            self._owner.link_stream(self, stream)
