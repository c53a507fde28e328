"""The consuming end of an edge: the stream it accepted, its reader and its ring."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ppsmoke.edges import records
from ppsmoke.edges.machine import ConsumerMachine, ConsumerState
from ppsmoke.edges.ring import Ring
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, PpError
from ppsmoke.messages import InboundEdgeProvision
from ppsmoke.objects import HEADER, StreamObject, decode_object
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.link import Spawn
from ppsmoke.transport.stream import FrameStream
from ppsmoke.transport.tasks import stop_tasks


class InboundEdge:
    """Make it inside the event loop, hand it to the EdgeAcceptor, then `wait_ready` and `next`; `close` at any time.

    `faulted` resolves to the fault the moment the edge breaks.
    `objects` and `bytes` count what arrived.
    """

    def __init__(self, run_id: str, provision: InboundEdgeProvision) -> None:
        self.provision = provision
        self.ring = Ring(provision.ring_spec)
        self.faulted: asyncio.Future[EdgeFaulted] = asyncio.get_running_loop().create_future()
        self.objects = 0
        self.bytes = 0
        self._machine = ConsumerMachine(run_id, provision, f"node {provision.producer_node_id[:8]}")
        self._reader: asyncio.Task[None] | None = None
        self._closing: str | None = None
        self._changed = asyncio.Event()

    @property
    def run_id(self) -> str:
        return self._machine.run_id

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing is not None

    def name_producer(self, name: str) -> None:
        """Say what people call the producer, for errors; the acceptor does."""
        self._machine.peer_name = name

    @property
    def state(self) -> ConsumerState:
        return self._machine.state

    async def wait_ready(self, deadline_s: float = 10.0) -> None:
        """Return when the producer's stream is accepted.

        Raises EdgeFaulted, DeadlineExceeded when the producer has not opened it in `deadline_s` seconds.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while self.state is ConsumerState.WAITING:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            what = f"{self._machine.title}: {self._machine.peer_name} did not open it within {deadline_s:g} s"
            raise DeadlineExceeded(what, peer=self._machine.peer_name, phase="open edge") from None
        if self._machine.fault is not None:
            raise self._machine.fault

    async def next(self) -> StreamObject | None:
        """The next object, waiting for one; None after the producer finished and all was taken. Raises EdgeFaulted."""
        return await self.ring.get()

    async def close(self, reason: str) -> None:
        """Stop at once and tell the producer why. Idempotent, never raises; `faulted` stays as it is."""
        self._closing = self._closing or reason
        self.ring.close(self._machine.close(reason))
        self._changed.set()
        if self._reader is not None:
            await stop_tasks([self._reader])
        self._reader = None

    def offered(self, peer_id: str, record: records.Open, stream: FrameStream, spawn: Spawn) -> records.Refuse | None:
        """A peer opened `stream` with `record`: None when it is taken over, else why not."""
        answer = self._machine.opened(peer_id, record)
        if isinstance(answer, records.Refuse):
            return answer
        self._reader = spawn(self._receive(stream, answer), f"reader of {self._machine.title}")
        self._changed.set()
        return None

    async def _receive(self, stream: FrameStream, accept: records.Accept) -> None:
        spec = self.provision.object_spec
        stream.cutter.max_frame = max(HEADER.size + spec.max_extent, records.MAX_RECORD_BYTES)
        try:
            await stream.write_frame(records.encode(accept))
            while self.state is ConsumerState.READY:
                frame = await stream.read_frame()
                if frame is None:
                    self._machine.stream_ended()
                elif records.is_record(frame):
                    ended = self._machine.record(records.decode(frame))
                    self.ring.end()
                    await stream.write_frame(records.encode(ended))
                    await stream.finish()
                else:
                    obj = decode_object(frame, spec)
                    self._machine.object(obj)
                    self.objects += 1
                    self.bytes += len(obj.payload)
                    await self.ring.put(obj)
        except (PpError, FrameError, records.RecordMalformed) as error:
            self._machine.lost(str(error))
        finally:
            self._machine.lost("this process is leaving")
            if self._machine.fault is not None:
                self._fault(self._machine.fault)
                await self._tell_producer(stream)

    async def _tell_producer(self, stream: FrameStream) -> None:
        if self._closing is not None:
            record: records.Record = records.Closed(self._closing)
        else:
            record = records.Fault(str(self._machine.fault))
        with suppress(TimeoutError, PpError):
            async with asyncio.timeout(1.0):
                await stream.write_frame(records.encode(record))
                await stream.finish()
        await stream.stop_reading()
        await stream.wait_delivered(0.5)

    def _fault(self, error: EdgeFaulted) -> None:
        fault = self._machine.fail(error)
        self.ring.close(fault)
        if self.state is ConsumerState.FAULTED and not self.faulted.done():
            self.faulted.set_result(fault)
        self._changed.set()
