"""The producing end of an edge: ring, pump and the stream it opened."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from ppsmoke.edges import records
from ppsmoke.edges.lanes import OutLanes, lanes_for
from ppsmoke.edges.machine import ProducerMachine, ProducerState
from ppsmoke.edges.ring import Ring
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, LinkBroken, PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.messages import EdgeKind, OutboundEdgeProvision
from ppsmoke.objects import StreamObject, encode_header
from ppsmoke.transport.blocking import CallsCancelled
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.link import Outage, PathKind
from ppsmoke.transport.mesh import Mesh
from ppsmoke.transport.stream import FrameStream
from ppsmoke.transport.tasks import stop_tasks
from ppsmoke.waiting import wait_for

log = logging.getLogger(__name__)

DIAL_S = 10.0
"""A consumer may take long to be provisioned, but not to be reached."""
RESUME_S = 5.0
_RETRY_S = 0.05
_ORDERLY_S = 1.0
_LAST_WORDS_S = 0.5
_EXPLAIN_S = 3.0
_MALFORMED: tuple[type[Exception], ...] = (PpError, FrameError, records.RecordMalformed)
_BREAKS: tuple[type[Exception], ...] = (EdgeFaulted, CallsCancelled, *IROH_ERRORS)


class OutboundEdge:
    """Make it inside the event loop. Order of calls: `open`, `write`..., `finish`; `close` at any time.

    `threaded`: instead of tasks calling `write`, one thread calls `prepare` and `send`, which writes straight to the
    stream and waits while the transport's window is full: no ring, no task, no loop on an object's way.
    `resume_s`: how long the edge may be without a connection before it faults, in seconds.
    `faulted` resolves to the fault the moment the edge breaks. `objects` and `bytes` count what was handed to the
    transport; `written_at` is when a threaded edge last did so (monotonic seconds). `on_resumed` is called when the
    edge goes on over another connection.
    """

    def __init__(
        self,
        mesh: Mesh,
        run_id: str,
        provision: OutboundEdgeProvision,
        *,
        threaded: bool = False,
        resume_s: float = RESUME_S,
    ) -> None:
        self.provision = provision
        self.threaded = threaded
        self.ring = Ring(provision.ring_spec)
        self.faulted: asyncio.Future[EdgeFaulted] = asyncio.get_running_loop().create_future()
        self.on_resumed: Callable[[Outage], None] | None = None
        self.objects = 0
        self.bytes = 0
        self.written_at: float | None = None
        self._resume_s = resume_s
        self._mesh = mesh
        self._machine = ProducerMachine(run_id, provision, mesh.name_of(provision.consumer_node_id))
        self._lanes: OutLanes | None = None
        """What is written to now; None before the first stream, while the edge resumes, and after its end."""
        self._attaching: list[FrameStream] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.Task[None] | None = None
        self._interrupted = asyncio.Event()
        self._writing = False
        self._all_sent = False
        self._ending = False
        """`close` has the pump send the edge's end; a late Ack, say, does not stop it."""
        self._answered = asyncio.Event()  # what the consumer says to that has come, or cannot come any more
        self._pumped = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._head, self._size = b"", 0
        self._lock = threading.Lock()

    @property
    def state(self) -> ProducerState:
        return self._machine.state

    async def open(self, deadline_s: float = 10.0) -> None:
        """Open the stream and wait until the consumer accepted it.

        Raises EdgeFaulted when it refuses or the link fails, DeadlineExceeded after `deadline_s` seconds.
        """
        try:
            async with asyncio.timeout(deadline_s):
                lanes = await self._unless_over(self._attach_at_last(min(deadline_s, DIAL_S)))
        except (TimeoutError, DeadlineExceeded) as error:
            why = str(error) or f"{self._machine.peer_name} did not accept it within {deadline_s:g} s"
            self._fault(self._machine.error(why, "open edge"))
            what = f"{self._machine.title}: {why}"
            raise DeadlineExceeded(what, peer=self._machine.peer_name, phase="open edge") from None
        except _MALFORMED as error:
            raise self._fault(error) from None
        if self.threaded:
            lanes.hand_to_thread()
        self._lanes = lanes
        self._spawn(self._listen(lanes), "answers on")
        if not self.threaded:
            self._spawn(self._pump(), "pump of")

    async def write(self, obj: StreamObject) -> None:
        """Hand over one object; waits while the ring is full. Raises EdgeFaulted.

        An object that is out of order or does not fit the edge faults it.
        """
        try:
            self._machine.write(obj)
            await self.ring.put(obj)
        except EdgeFaulted as error:
            raise self._fault(self._machine.fault or self._machine.error(str(error))) from None

    # ---- in the thread of a threaded edge

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
            raise self._outlast(None, error) or error from None
        self._head, self._size = encode_header(sized), size
        if (lanes := self._lanes) is not None:
            lanes.prepare(len(self._head) + size)

    def send(self, payload: bytes) -> None:
        """Write the object that was prepared; returns when the transport has taken it. `close` wakes it."""
        lanes: OutLanes | None = None
        try:
            if len(payload) != self._size:
                raise self._machine.error(f"an object of {self._size} bytes was to be written, not {len(payload)}")
            with self._lock:
                self._machine.retained.add(self._head, payload)
                lanes = self._lanes
            if lanes is None:
                raise CallsCancelled
            lanes.write_in_thread(self._head, payload)
        except _BREAKS as error:
            if (fault := self._outlast(lanes, error)) is not None:
                raise fault from None
        self.written_at = time.monotonic()
        self._writing = False
        self.objects += 1
        self.bytes += len(payload)

    def _outlast(self, lanes: OutLanes | None, error: Exception) -> EdgeFaulted | None:
        """What a thread raises for `error`, None when its object has gone out on another connection.

        The loop, which knows why a link ended, sees to that.
        """
        asked = asyncio.run_coroutine_threadsafe(self._explain(lanes, error), self._loop)
        while True:
            try:
                return asked.result(_EXPLAIN_S)
            except TimeoutError:
                if self._resuming is None or self._loop.is_closed():
                    return self._machine.fail(str(error))
            except CancelledError:
                return self._machine.fail(str(error))

    # ---- breaks

    async def _explain(self, lanes: OutLanes | None, error: Exception) -> EdgeFaulted | None:
        """The fault behind what a writer ran into, in the consumer's own words where it said any; None when the edge
        has been resumed."""
        if isinstance(error, IROH_ERRORS) and lanes is not None:
            error = await lanes.first.explain(error)
        resumed = self._resume_after(lanes, error)
        if resumed is not None:
            await asyncio.wait(
                (resumed, interrupted := asyncio.ensure_future(self._interrupted.wait())),
                return_when=asyncio.FIRST_COMPLETED,
            )
            interrupted.cancel()
            if self._machine.fault is None and resumed.done() and not resumed.cancelled():
                return None
        elif not isinstance(error, EdgeFaulted | CallsCancelled):
            with suppress(TimeoutError):
                await wait_for(self._changed_to_over(), _LAST_WORDS_S)
        return self._fault(error)

    def _resume_after(self, lanes: OutLanes | None, error: Exception) -> asyncio.Task[None] | None:
        """The task that resumes the edge, begun if need be; None when `error` cannot be ridden out."""
        if self._machine.fault is not None or self._interrupted.is_set() or isinstance(error, EdgeFaulted):
            return None
        if self._lanes is not lanes or self._lanes is None:
            return self._resuming  # another connection took its place, or will
        if not isinstance(error, LinkBroken) or not self._machine.broken():
            return None
        with self._lock:
            self._lanes = None
        log.info("%s: resuming: %s", self._machine.title, error)
        path = self._mesh.path_kind(self.provision.consumer_node_id)
        self._resuming = self._spawn(self._resume(self._loop.time() - error.stalled_s, path), "resume")
        return self._resuming

    async def _resume(self, since: float, path: PathKind) -> None:
        """Attach to the consumer over another connection, however often that fails, and send what it has not taken.

        `since`: when the connection before was last known to work; `path`: what it took. Never raises; the edge is
        faulted when it fails for good.
        """
        ends = self._loop.time() + self._resume_s
        name = self._machine.peer_name
        why: Exception | None = None
        while True:
            lanes: OutLanes | None = None
            was_stopped = self.provision.consumer_node_id in self._mesh.stopped
            try:
                async with asyncio.timeout_at(ends):
                    lanes = await self._attach(self._machine.resume, max(0.0, ends - self._loop.time()))
                await self._catch_up(lanes)
                break
            except (TimeoutError, DeadlineExceeded) as error:
                # Also when it is just back: it has had none of this time.
                if was_stopped or self.provision.consumer_node_id in self._mesh.stopped:
                    ends = self._loop.time() + self._resume_s
                    continue
                what = f"the connection to {name} was lost, and not resumed within {self._resume_s:g} s"
                reason = why or (error if str(error) else None)
                self._fault(self._machine.error(f"{what} ({reason})" if reason else what))
                return
            except LinkBroken as error:
                why = error
                await asyncio.sleep(_RETRY_S)
            except _MALFORMED as error:
                self._fault(error)
                return
        stall_s = self._loop.time() - since
        log.info("%s: resumed after %.1f s", self._machine.title, stall_s)
        if self.on_resumed is not None:
            self.on_resumed(Outage(stall_s, path, self._mesh.path_kind(self.provision.consumer_node_id)))

    async def _attach_at_last(self, deadline_s: float) -> OutLanes:
        """For the first time, on one connection after the other until one lasts."""
        while True:
            unopened = self._machine.state is ProducerState.IDLE
            try:
                return await self._attach(self._machine.open if unopened else self._machine.resume, deadline_s)
            except LinkBroken as error:
                log.info("%s: opening it again: %s", self._machine.title, error)
                await asyncio.sleep(_RETRY_S)

    async def _attach(
        self, first_record: Callable[[int], records.Open | records.Resume], deadline_s: float
    ) -> OutLanes:
        """Open the edge's stream, or streams, over the link to the consumer, and have the consumer's agreement."""
        consumer, provision = self.provision.consumer_node_id, self.provision
        await self._mesh.link(consumer, deadline_s=deadline_s)
        wide = provision.kind is EdgeKind.ACTIVATION
        round_trip_s = self._mesh.round_trip_s(consumer)
        count = lanes_for(round_trip_s) if wide else 1
        record = first_record(count)
        self._attaching = []
        first = await self._open_stream(deadline_s)
        await first.write_frame(records.encode(record))
        frame = await first.read_frame()
        if frame is None:
            raise self._machine.error(f"{self._machine.peer_name} ended its side of the stream")
        with self._lock:
            self._machine.answered(records.decode(frame))
        for number in range(1, count):
            lane = records.Lane(record.run_id, provision.edge_id, self._machine.attempt, number)
            await (await self._open_stream(deadline_s)).write_frame(records.encode(lane))
        lanes, self._attaching = OutLanes(self._attaching), []
        if wide:
            await lanes.yield_to_small_ones()
        return lanes

    async def _open_stream(self, deadline_s: float) -> FrameStream:
        stream = await self._mesh.open_stream(
            self.provision.consumer_node_id, max_frame=records.MAX_RECORD_BYTES, deadline_s=deadline_s
        )
        self._attaching.append(stream)
        return stream

    async def _catch_up(self, lanes: OutLanes) -> None:
        """Send what the consumer has not taken, then have the writer go on from there."""
        retained = self._machine.retained
        number = retained.first
        while True:
            with self._lock:
                waiting = retained.since(number)
                if not waiting:
                    if self.threaded:
                        lanes.hand_to_thread()
                    self._lanes = lanes
                    break
            for sent in waiting:
                await lanes.write(*sent)
            number += len(waiting)
        self._spawn(self._listen(lanes), "answers on")

    # ---- the end

    async def finish(self, deadline_s: float = 10.0) -> None:
        """Say that nothing more comes, and wait until the consumer has taken everything.

        Raises EdgeFaulted, DeadlineExceeded when the consumer has not taken it in `deadline_s` seconds.
        """
        try:
            self._machine.finish()
            self.ring.end()
            if self.threaded:
                self._spawn(self._pump(), "end of")
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
        self._interrupted.set()
        if self.threaded and (lanes := self._lanes) is not None:
            lanes.cancel()

    async def close(self, reason: str) -> None:
        """Stop. Idempotent, never raises, takes a second or two at most; `faulted` stays as it is.

        For the consumer this is an orderly end when everything written is on its way, else the edge breaks off.
        """
        with self._lock:
            orderly = self.state is ProducerState.READY and not len(self.ring) and not self._writing
            fault = self._machine.close(reason)
            lanes = self._lanes
        self.interrupt()
        if orderly and lanes is not None:
            self._ending = True
            if self.threaded:
                self._spawn(self._pump(), "end of")
            self.ring.end()
            orderly = False
            with suppress(TimeoutError):
                await wait_for(self._pumped.wait(), _ORDERLY_S)
                async with asyncio.timeout(_ORDERLY_S):
                    orderly = self._all_sent and await lanes.first.wait_delivered(_ORDERLY_S)
                    if orderly:  # the streams end with `lanes`, and the consumer could not answer any more
                        await self._answered.wait()
        self._lanes = None
        self.ring.close(fault)
        self._changed.set()
        await stop_tasks(self._tasks)
        if lanes is not None and not orderly and self.state is not ProducerState.FINISHED:
            await lanes.abort()
        await OutLanes(self._attaching).abort()

    async def _pump(self) -> None:
        """What is in the ring, until it ends, and then the edge's own end."""
        try:
            while not self.threaded and (obj := await self.ring.get()) is not None:
                self._writing = True
                head = encode_header(obj)
                self._machine.retained.add(head, obj.payload)
                await self._deliver(head, obj.payload)
                self._writing = False
                self.objects += 1
                self.bytes += len(obj.payload)
            if (lanes := self._lanes) is not None:
                await lanes.write(records.encode(records.Finish()))
                await lanes.finish()
                self._all_sent = True
        except PpError as error:
            with suppress(TimeoutError):  # the consumer's own words, if any, are on their way to `_listen`
                await wait_for(self._changed_to_over(), _LAST_WORDS_S)
            self._fault(error)
        finally:
            self._pumped.set()

    async def _deliver(self, head: bytes, payload: bytes) -> None:
        lanes = self._lanes
        try:
            if lanes is None:
                raise CallsCancelled
            await lanes.write(head, payload)
        except (PpError, CallsCancelled) as error:
            if (fault := await self._explain(lanes, error)) is not None:
                raise fault from None

    async def _listen(self, lanes: OutLanes) -> None:
        """What the consumer says on the stream of `lanes`."""
        try:
            while True:
                frame = await lanes.first.read_frame()
                if frame is None:
                    self._machine.lost(f"{self._machine.peer_name} ended its side of the stream")
                    break
                record = records.decode(frame)
                if self._ending:
                    if isinstance(record, records.Ack):
                        continue
                    break
                with self._lock:
                    self._machine.answered(record)
                self._changed.set()
                if self.state is ProducerState.FINISHED:
                    return
                if self._machine.fault is not None:
                    self.ring.close(self._machine.fault)  # the consumer closed it: a waiting writer must know
        except _MALFORMED as error:
            if self._resume_after(lanes, error) is None:
                self._fault(error)
        finally:
            if self._lanes is lanes:
                self._answered.set()
                self._machine.lost("this process is leaving")
            if self._machine.fault is not None:
                self._fault(self._machine.fault)

    def _fault(self, error: Exception) -> EdgeFaulted:
        with self._lock:
            fault = self._machine.fail(error if isinstance(error, EdgeFaulted) else str(error))
        if not self._ending:
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

    async def _unless_over(self, work: Coroutine[Any, Any, OutLanes]) -> OutLanes:
        """What `work` gives, unless the edge is closed before. Raises its fault then."""
        tasks = (asyncio.ensure_future(work), asyncio.ensure_future(self._changed_to_over()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                return tasks[0].result()
            assert self._machine.fault is not None
            raise self._machine.fault
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _changed_to_over(self) -> None:
        while self._machine.fault is None:
            self._changed.clear()
            await self._changed.wait()

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = self._mesh.spawn(work, f"{what} {self._machine.title}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
