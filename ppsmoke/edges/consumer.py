"""The consuming end of an edge: the stream it accepted, its reader and its ring."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress

from ppsmoke.edges import records
from ppsmoke.edges.machine import ConsumerMachine, ConsumerState
from ppsmoke.edges.ring import Ring
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.messages import InboundEdgeProvision
from ppsmoke.objects import HEADER, StreamObject, decode_object, is_whole_object
from ppsmoke.transport.blocking import CallsCancelled
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.link import Spawn
from ppsmoke.transport.stream import FrameReader, FrameStream
from ppsmoke.transport.tasks import stop_tasks

_EXPLAIN_S = 3.0
_BREAKS: tuple[type[Exception], ...] = (
    PpError, FrameError, records.RecordMalformed, CallsCancelled, *IROH_ERRORS
)  # fmt: skip


class InboundEdge:
    """Make it inside the event loop, hand it to the EdgeAcceptor, then `wait_ready` and `next`; `close` at any time.

    `threaded`: instead of tasks calling `next`, one thread calls `take` and `admit`, straight off the stream. The
    transport's window is the ring then: it holds what arrives while the thread is busy, and fills up.
    `faulted` resolves to the fault the moment the edge breaks; a threaded edge looks only while it takes.
    `objects` and `bytes` count what arrived.
    """

    def __init__(self, run_id: str, provision: InboundEdgeProvision, *, threaded: bool = False) -> None:
        self.provision = provision
        self.threaded = threaded
        self.ring = Ring(provision.ring_spec)
        self.faulted: asyncio.Future[EdgeFaulted] = asyncio.get_running_loop().create_future()
        self.objects = 0
        self.bytes = 0
        self._machine = ConsumerMachine(run_id, provision, f"node {provision.producer_node_id[:8]}")
        self._reader: asyncio.Task[None] | None = None
        self._closing: str | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._stream: FrameStream | None = None
        self._reader_in_thread: FrameReader | None = None
        self._lock = threading.Lock()
        self._left: asyncio.Future[None] = self._loop.create_future()

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
                while self.state is ConsumerState.WAITING or (
                    self.threaded and self._stream is None and self._machine.fault is None
                ):
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

    def take(self) -> bytes | None:
        """The next object's record, in the thread of a threaded edge, which must be given to `admit`; None at the end.

        Nothing but its length was checked yet. Raises EdgeFaulted; `close` wakes it.
        """
        stream, reader = self._stream, self._reader_in_thread
        assert stream is not None, "wait_ready comes first"
        assert reader is not None
        try:
            frame = reader.read()
            if frame is not None:
                if is_whole_object(frame):
                    return frame
                if not records.is_record(frame):
                    decode_object(frame, self.provision.object_spec)  # raises, with what is wrong
                with self._lock:
                    ended = self._machine.record(records.decode(frame))
                stream.thread_writer().write(records.encode(ended), b"")
            else:
                with self._lock:
                    self._machine.stream_ended()
                if self._machine.fault is not None:
                    raise self._machine.fault
        except _BREAKS as error:
            raise self._broken(stream, error) from None
        self._loop.call_soon_threadsafe(self._leave)
        return None

    def admit(self, record: bytes) -> StreamObject:
        """The object that was taken, judged. Raises EdgeFaulted."""
        try:
            obj = decode_object(record, self.provision.object_spec)
            with self._lock:
                self._machine.object(obj)
        except EdgeFaulted as error:
            assert self._stream is not None
            raise self._broken(self._stream, error) from None
        self.objects += 1
        self.bytes += len(obj.payload)
        return obj

    def _broken(self, stream: FrameStream, error: Exception) -> EdgeFaulted:
        """What `take` raises for `error`; the loop, which knows why a link ended, words it."""
        asked = asyncio.run_coroutine_threadsafe(self._explain(stream, error), self._loop)
        try:
            return asked.result(_EXPLAIN_S)
        except (TimeoutError, CancelledError):
            return self._machine.fail(str(error))

    async def _explain(self, stream: FrameStream, error: Exception) -> EdgeFaulted:
        if isinstance(error, IROH_ERRORS):
            error = await stream.explain(error)
        with self._lock:
            self._machine.lost(str(error))
        self._leave()
        return self._machine.fault or self._machine.error(str(error))

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    def interrupt(self) -> None:
        """Wake the thread of a threaded edge for good; the edge itself is left as it is."""
        if self._reader_in_thread is not None:
            self._reader_in_thread.cancel()

    async def close(self, reason: str) -> None:
        """Stop at once and tell the producer why. Idempotent, never raises; `faulted` stays as it is."""
        self._closing = self._closing or reason
        with self._lock:
            fault = self._machine.close(reason)
        self.ring.close(fault)
        if self._reader_in_thread is not None:
            self._reader_in_thread.cancel()
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
            if self.threaded:
                self._reader_in_thread = stream.thread_reader()
                self._stream = stream
                self._changed.set()
                await self._left
                if self.state is ConsumerState.ENDED:
                    await stream.finish()
                return
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
        with self._lock:
            fault = self._machine.fail(error)
        self.ring.close(fault)
        if self.state is ConsumerState.FAULTED and not self.faulted.done():
            self.faulted.set_result(fault)
        self._changed.set()
