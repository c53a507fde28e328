"""The producing end of an edge: ring, pump and the stream it opened."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from ppsmoke.edges import records
from ppsmoke.edges.machine import ProducerMachine, ProducerState
from ppsmoke.edges.ring import Ring
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.messages import OutboundEdgeProvision
from ppsmoke.objects import StreamObject, encode_header
from ppsmoke.transport.blocking import CallsCancelled
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.mesh import Mesh
from ppsmoke.transport.stream import FrameStream, FrameWriter
from ppsmoke.transport.tasks import stop_tasks

DIAL_S = 10.0
"""A consumer may take long to be provisioned, but not to be reached."""
_ORDERLY_S = 1.0
_LAST_WORDS_S = 0.5
_EXPLAIN_S = 3.0
_BREAKS: tuple[type[Exception], ...] = (EdgeFaulted, CallsCancelled, *IROH_ERRORS)


class OutboundEdge:
    """Make it inside the event loop. Order of calls: `open`, `write`..., `finish`; `close` at any time.

    `threaded`: instead of tasks calling `write`, one thread calls `prepare` and `send`, which writes straight to the
    stream and waits while the transport's window is full: no ring, no task, no loop on an object's way.
    `faulted` resolves to the fault the moment the edge breaks. `objects` and `bytes` count what was handed to the
    transport; `written_at` is when a threaded edge last did so (monotonic seconds).
    """

    def __init__(self, mesh: Mesh, run_id: str, provision: OutboundEdgeProvision, *, threaded: bool = False) -> None:
        self.provision = provision
        self.threaded = threaded
        self.ring = Ring(provision.ring_spec)
        self.faulted: asyncio.Future[EdgeFaulted] = asyncio.get_running_loop().create_future()
        self.objects = 0
        self.bytes = 0
        self.written_at: float | None = None
        self._mesh = mesh
        self._machine = ProducerMachine(run_id, provision, mesh.name_of(provision.consumer_node_id))
        self._stream: FrameStream | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writing = False
        self._all_sent = False
        self._pumped = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._writer: FrameWriter | None = None
        self._head, self._size = b"", 0
        self._lock = threading.Lock()

    @property
    def state(self) -> ProducerState:
        return self._machine.state

    async def open(self, deadline_s: float = 10.0) -> None:
        """Open the stream and wait until the consumer accepted it.

        Raises EdgeFaulted when it refuses or the link fails, DeadlineExceeded after `deadline_s` seconds.
        """
        first = self._machine.open()
        ends = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(ends):
                self._stream = await self._mesh.open_stream(
                    self.provision.consumer_node_id,
                    max_frame=records.MAX_RECORD_BYTES,
                    deadline_s=min(deadline_s, DIAL_S),
                )
                self._spawn(self._listen(self._stream), "answers on")
                await self._stream.write_frame(records.encode(first))
                await self._until(ProducerState.READY)
        except (TimeoutError, DeadlineExceeded) as error:
            why = str(error) or f"{self._machine.peer_name} did not accept it within {deadline_s:g} s"
            self._fault(self._machine.error(why, "open edge"))
            what = f"{self._machine.title}: {why}"
            raise DeadlineExceeded(what, peer=self._machine.peer_name, phase="open edge") from None
        except PpError as error:
            raise self._fault(error) from None
        if self.threaded:
            self._writer = self._stream.thread_writer()
        else:
            self._spawn(self._pump(self._stream), "pump of")

    async def write(self, obj: StreamObject) -> None:
        """Hand over one object; waits while the ring is full. Raises EdgeFaulted.

        An object that is out of order or does not fit the edge faults it.
        """
        try:
            self._machine.write(obj)
            await self.ring.put(obj)
        except EdgeFaulted as error:
            raise self._fault(self._machine.fault or self._machine.error(str(error))) from None

    def prepare(self, obj: StreamObject) -> None:
        """In the thread of a threaded edge: judge the next object, whose payload `send` brings. Raises EdgeFaulted."""
        size = self.provision.object_spec.payload_bytes(obj.seq_len)
        sized = StreamObject(
            self.provision.edge_id, obj.request_id, obj.sequence, obj.position, obj.seq_len, bytes(size), obj.part,
            obj.last_part, obj.is_prefill, obj.finish_reason,
        )  # fmt: skip
        self._writing = True
        try:
            with self._lock:
                self._machine.write(sized)
        except EdgeFaulted as error:
            raise self._broken(error) from None
        self._head, self._size = encode_header(sized), size
        if self._writer is not None:
            self._writer.prepare(len(self._head) + size)

    def send(self, payload: bytes) -> None:
        """Write the object that was prepared; returns when the transport has taken it. `close` wakes it."""
        writer = self._writer
        try:
            if writer is None:
                raise CallsCancelled
            if len(payload) != self._size:
                raise self._machine.error(f"an object of {self._size} bytes was to be written, not {len(payload)}")
            writer.write(self._head, payload)
        except _BREAKS as error:
            raise self._broken(error) from None
        self.written_at = time.monotonic()
        self._writing = False
        self.objects += 1
        self.bytes += len(payload)

    def _broken(self, error: Exception) -> EdgeFaulted:
        """What a thread raises for `error`; the loop, which knows why a link ended, words it."""
        asked = asyncio.run_coroutine_threadsafe(self._explain(self._stream, error), self._loop)
        try:
            return asked.result(_EXPLAIN_S)
        except (TimeoutError, CancelledError):
            return self._machine.fail(str(error))

    async def _explain(self, stream: FrameStream | None, error: Exception) -> EdgeFaulted:
        """The fault behind what a thread ran into, in the consumer's own words where it said any."""
        if isinstance(error, IROH_ERRORS) and stream is not None:
            error = await stream.explain(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed_to_over(), _LAST_WORDS_S)
        return self._fault(error)

    async def finish(self, deadline_s: float = 10.0) -> None:
        """Say that nothing more comes, and wait until the consumer has taken everything.

        Raises EdgeFaulted, DeadlineExceeded when the consumer has not taken it in `deadline_s` seconds.
        """
        try:
            self._machine.finish()
            self.ring.end()
            if self.threaded and self._stream is not None:
                self._spawn(self._pump(self._stream), "end of")
            async with asyncio.timeout(deadline_s):
                await self._until(ProducerState.FINISHED)
        except TimeoutError:
            why = f"{self._machine.peer_name} has not taken everything within {deadline_s:g} s"
            self._fault(self._machine.error(why, "finish edge"))
            what = f"{self._machine.title}: {why}"
            raise DeadlineExceeded(what, peer=self._machine.peer_name, phase="finish edge") from None
        except EdgeFaulted as error:
            raise self._fault(error) from None

    def interrupt(self) -> None:
        """Wake the thread of a threaded edge for good; the edge itself is left as it is."""
        if self._writer is not None:
            self._writer.cancel()

    async def close(self, reason: str) -> None:
        """Stop. Idempotent, never raises, takes a second or two at most; `faulted` stays as it is.

        For the consumer this is an orderly end when everything written is on its way, else the edge breaks off.
        """
        stream, self._stream = self._stream, None
        with self._lock:
            orderly = self.state is ProducerState.READY and not len(self.ring) and not self._writing
            fault = self._machine.close(reason)
        self.interrupt()
        if orderly and stream is not None:
            if self.threaded:
                self._spawn(self._pump(stream), "end of")
            self.ring.end()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._pumped.wait(), _ORDERLY_S)
                orderly = self._all_sent and await stream.wait_delivered(_ORDERLY_S)
        self.ring.close(fault)
        self._changed.set()
        await stop_tasks(self._tasks)
        if stream is not None and not orderly and self.state is not ProducerState.FINISHED:
            await stream.abort()

    async def _pump(self, stream: FrameStream) -> None:
        try:
            while not self.threaded and (obj := await self.ring.get()) is not None:
                self._writing = True
                await stream.write_frame(encode_header(obj), obj.payload)
                self._writing = False
                self.objects += 1
                self.bytes += len(obj.payload)
            await stream.write_frame(records.encode(records.Finish()))
            await stream.finish()
            self._all_sent = True
        except PpError as error:
            with suppress(TimeoutError):  # the consumer's own words, if any, are on their way to `_listen`
                await asyncio.wait_for(self._changed_to_over(), _LAST_WORDS_S)
            self._fault(error)
        finally:
            self._pumped.set()

    async def _listen(self, stream: FrameStream) -> None:
        try:
            while True:
                frame = await stream.read_frame()
                if frame is None:
                    self._machine.lost(f"{self._machine.peer_name} ended its side of the stream")
                    break
                with self._lock:
                    self._machine.answered(records.decode(frame))
                self._changed.set()
                if self.state is ProducerState.FINISHED:
                    return
                if self._machine.fault is not None:
                    self.ring.close(self._machine.fault)  # the consumer closed it: a waiting writer must know
        except (PpError, FrameError, records.RecordMalformed) as error:
            self._fault(error)
        finally:
            self._machine.lost("this process is leaving")
            if self._machine.fault is not None:
                self._fault(self._machine.fault)

    def _fault(self, error: Exception) -> EdgeFaulted:
        with self._lock:
            fault = self._machine.fail(error if isinstance(error, EdgeFaulted) else str(error))
        self.ring.close(fault)
        if self.state is ProducerState.FAULTED and not self.faulted.done():
            self.faulted.set_result(fault)
        self._changed.set()
        return fault

    async def _until(self, state: ProducerState) -> None:
        while self.state is not state:
            if self._machine.fault is not None:
                raise self._machine.fault
            self._changed.clear()
            await self._changed.wait()

    async def _changed_to_over(self) -> None:
        while self._machine.fault is None:
            self._changed.clear()
            await self._changed.wait()

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        self._tasks.append(self._mesh.spawn(work, f"{what} {self._machine.title}"))
