"""The consuming end of an edge: the stream it accepted, its reader and its ring."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress

from ppsmoke.edges import records
from ppsmoke.edges.lanes import MOST_LANES, InLanes
from ppsmoke.edges.machine import ConsumerMachine, ConsumerState
from ppsmoke.edges.ring import Ring
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, LinkBroken, PeerLost, PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.messages import InboundEdgeProvision
from ppsmoke.objects import HEADER, StreamObject, decode_object, is_whole_object
from ppsmoke.transport.blocking import CallsCancelled
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.link import Spawn
from ppsmoke.transport.stream import FrameStream
from ppsmoke.transport.tasks import stop_tasks

log = logging.getLogger(__name__)

RESUME_S = 5.0
_GATHER_S = 10.0
_EXPLAIN_S = 3.0
_MALFORMED: tuple[type[Exception], ...] = (PpError, FrameError, records.RecordMalformed)
_BREAKS: tuple[type[Exception], ...] = (*_MALFORMED, CallsCancelled, *IROH_ERRORS)


class InboundEdge:
    """Make it inside the event loop, hand it to the EdgeAcceptor, then `wait_ready` and `next`; `close` at any time.

    `threaded`: instead of tasks calling `next`, one thread calls `take` and `admit`, straight off the stream. The
    transport's window is the ring then: it holds what arrives while the thread is busy, and fills up.
    `resume_s`: how long a producer whose connection is lost may take to come back on another one, in seconds.
    `faulted` resolves to the fault the moment the edge breaks; a threaded edge looks only while it takes.
    `objects` and `bytes` count what arrived.
    """

    def __init__(
        self, run_id: str, provision: InboundEdgeProvision, *, threaded: bool = False, resume_s: float = RESUME_S
    ) -> None:
        self.provision = provision
        self.threaded = threaded
        self.ring = Ring(provision.ring_spec)
        self.faulted: asyncio.Future[EdgeFaulted] = asyncio.get_running_loop().create_future()
        self.objects = 0
        self.bytes = 0
        self.redial: Callable[[], Awaitable[None]] | None = None
        """Makes a link to the producer, which may not be able to; the acceptor sets it."""
        self.is_stopped: Callable[[], bool] = lambda: False
        """Whether the producer's process is known to be stopped, so that it cannot come back just now."""
        self._resume_s = resume_s
        self._machine = ConsumerMachine(run_id, provision, f"node {provision.producer_node_id[:8]}")
        self._serving: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._spawn: Spawn
        self._closing: str | None = None
        self._interrupted = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._lanes: InLanes | None = None
        """What is read now; None before the first stream and while the edge waits for another one."""
        self._reading = False
        self._lanes_came = threading.Event()
        self._opened = False
        self._answers: FrameStream | None = None
        self._gathering: tuple[int, int, dict[int, FrameStream]] | None = None  # attempt, count, by number
        self._broken_at = 0.0
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
                await self._until(lambda: self._opened)
        except TimeoutError:
            what = f"{self._machine.title}: {self._machine.peer_name} did not open it within {deadline_s:g} s"
            raise DeadlineExceeded(what, peer=self._machine.peer_name, phase="open edge") from None
        if self._machine.fault is not None:
            raise self._machine.fault

    async def next(self) -> StreamObject | None:
        """The next object, waiting for one; None after the producer finished and all was taken. Raises EdgeFaulted."""
        return await self.ring.get()

    # ---- in the thread of a threaded edge

    def take(self) -> bytes | None:
        """The next object's record, in the thread of a threaded edge, which must be given to `admit`; None at the end.

        Nothing but its length was checked yet. Raises EdgeFaulted; `close` wakes it.
        """
        while True:
            with self._lock:
                lanes = self._lanes if not self._interrupted else None
                self._reading = lanes is not None
            if lanes is None:
                self._wait_for_lanes()
                continue
            frame: bytes | None = None
            error: Exception | None = None
            try:
                frame = lanes.read_in_thread()
            except _BREAKS as caught:
                error = caught
            if frame is not None and is_whole_object(frame):
                with self._lock:
                    self._machine.took(len(frame))
                    self._reading = False
                    replaced = self._lanes is not lanes
                if replaced:
                    self._loop.call_soon_threadsafe(self._changed.set)
                return frame
            if self._end_reading(lanes):
                continue
            try:
                if error is not None:
                    raise error
                self._take_record(lanes, frame)
            except _BREAKS as caught:
                if (fault := self._judge(lanes, caught)) is not None:
                    raise fault from None
                continue
            self._loop.call_soon_threadsafe(self._leave)
            return None

    def admit(self, record: bytes) -> StreamObject:
        """The object that was taken, judged. Raises EdgeFaulted."""
        try:
            obj = decode_object(record, self.provision.object_spec)
            with self._lock:
                self._machine.object(obj)
                acknowledgement = self._machine.acknowledgement()
                lanes = self._lanes
        except EdgeFaulted as error:
            raise self._judge(self._lanes, error) or self._machine.error(str(error)) from None
        self.objects += 1
        self.bytes += len(obj.payload)
        if acknowledgement is not None and lanes is not None:
            with suppress(*_BREAKS):  # whoever reads next sees why
                lanes.answer_in_thread(records.encode(acknowledgement))
        return obj

    def _wait_for_lanes(self) -> None:
        """Return when there may be lanes to read again. Raises EdgeFaulted when there will be none."""
        with self._lock:
            if self._machine.fault is not None:
                raise self._machine.fault
            if self._lanes is None:
                self._lanes_came.clear()
            interrupted = self._interrupted
        was_stopped = self.is_stopped()
        if interrupted or (not self._lanes_came.wait(self._time_left()) and not self._is_excused(was_stopped)):
            why = CallsCancelled() if interrupted else self._too_late()
            raise self._judge(None, why) or self._machine.error(str(why))

    def _end_reading(self, lanes: InLanes) -> bool:
        """After a read that brought no object: whether other lanes are to be read now."""
        with self._lock:
            self._reading = False
            replaced = self._lanes is not lanes and not self._interrupted and self._machine.fault is None
        if replaced:
            self._loop.call_soon_threadsafe(self._changed.set)
        return replaced

    def _take_record(self, lanes: InLanes, frame: bytes | None) -> None:
        """Judge what came where an object could have: returns at an orderly end, raises what is wrong."""
        if frame is None:
            with self._lock:
                self._machine.stream_ended()
            if self._machine.fault is not None:
                raise self._machine.fault
            return
        if not records.is_record(frame):
            decode_object(frame, self.provision.object_spec)  # raises, with what is wrong
        with self._lock:
            ended = self._machine.record(records.decode(frame))
        with suppress(*_BREAKS):  # a producer that did not wait for it has ended in order all the same
            lanes.answer_in_thread(records.encode(ended))

    def _judge(self, lanes: InLanes | None, error: Exception) -> EdgeFaulted | None:
        """What `take` raises for `error`, None where it goes on; the loop, which knows why a link ended, words it."""
        asked = asyncio.run_coroutine_threadsafe(self._explain(lanes, error), self._loop)
        try:
            return asked.result(_EXPLAIN_S)
        except (TimeoutError, CancelledError):
            return self._machine.fail(str(error))

    async def _explain(self, lanes: InLanes | None, error: Exception) -> EdgeFaulted | None:
        if isinstance(error, IROH_ERRORS) and lanes is not None:
            error = await lanes.first.explain(error)
        if lanes is not None and self._rides_out(lanes, error):
            return None
        with self._lock:
            self._machine.lost(str(error))
        self._leave()
        return self._machine.fault or self._machine.error(str(error))

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    def interrupt(self) -> None:
        """Wake the thread of a threaded edge for good; the edge itself is left as it is."""
        self._interrupted = True
        if self.threaded and (lanes := self._lanes) is not None:
            lanes.cancel()
        self._lanes_came.set()

    async def close(self, reason: str) -> None:
        """Stop at once and tell the producer why. Idempotent, never raises; `faulted` stays as it is."""
        self._closing = self._closing or reason
        with self._lock:
            fault = self._machine.close(reason)
        self.ring.close(fault)
        if self.threaded and (lanes := self._lanes) is not None:
            lanes.cancel()
        self._lanes_came.set()
        self._changed.set()
        await stop_tasks([*self._others, *([self._serving] if self._serving else [])])
        self._serving = None

    # ---- streams that a producer opens

    def offered(self, peer_id: str, record: records.Open, stream: FrameStream, spawn: Spawn) -> records.Refuse | None:
        """A peer opened `stream` with `record`: None when it is taken over, else why not."""
        if not 1 <= record.lanes <= MOST_LANES:
            return records.Refuse(f"an edge has 1 to {MOST_LANES} lanes")
        answer = self._machine.opened(peer_id, record)
        if isinstance(answer, records.Refuse):
            return answer
        self._spawn = spawn
        self._gathering = (0, record.lanes, {0: stream})
        self._serving = spawn(self._serve(stream, answer, 0), f"reader of {self._machine.title}")
        self._changed.set()
        return None

    def resumed(self, peer_id: str, record: records.Resume, stream: FrameStream, spawn: Spawn) -> records.Refuse | None:
        """Likewise, in the place of the stream before, whose connection is lost; perhaps before that had come."""
        if not 1 <= record.lanes <= MOST_LANES:
            return records.Refuse(f"an edge has 1 to {MOST_LANES} lanes")
        with self._lock:
            refuse = self._machine.resume(peer_id, record)
            if refuse is None:
                self._broken_at = self._broken_at or time.monotonic()
                before, self._lanes = self._lanes, None
        if refuse is not None:
            if self._machine.fault is not None and self._closing is None:
                self._fault(self._machine.fault)
            return refuse
        if before is not None and self.threaded:
            before.cancel()
        self._gathering = (record.attempt, record.lanes, {0: stream})
        if self._serving is None:
            self._spawn = spawn
            answer = self._machine.resumed()
            self._serving = spawn(self._serve(stream, answer, record.attempt), f"reader of {self._machine.title}")
            return None
        self._begin(self._take_over(stream, record.attempt), "resume")
        return None

    def offered_lane(self, peer_id: str, record: records.Lane, stream: FrameStream) -> records.Refuse | None:
        """A further lane of the newest stream."""
        if self._gathering is None or peer_id != self.provision.producer_node_id:
            return records.Refuse(f"edge {record.edge_id} waits for no lane")
        attempt, count, lanes = self._gathering
        if record.attempt != attempt or not 1 <= record.number < count or record.number in lanes:
            return records.Refuse(
                f"edge {record.edge_id} waits for no lane {record.number} of attempt {record.attempt}"
            )
        lanes[record.number] = stream
        self._changed.set()
        return None

    async def _serve(self, stream: FrameStream, answer: records.Accept | records.Resumed, attempt: int) -> None:
        try:
            self._answers = stream
            try:
                await stream.write_frame(records.encode(answer))
                await self._install(attempt)
            except LinkBroken:
                if attempt == self._machine.attempt:  # else another stream has taken its place
                    if not self._machine.broken():
                        raise
                    self._broken_at = time.monotonic()
            if self.threaded:
                await self._left
                if self.state is ConsumerState.ENDED:
                    await self._answers.finish()
                return
            await self._receive()
        except _MALFORMED as error:
            self._machine.lost(str(error))
        finally:
            self._machine.lost("this process is leaving")
            if self._machine.fault is not None:
                self._fault(self._machine.fault)
                await self._tell_producer()

    async def _receive(self) -> None:
        """Objects into the ring, until the end."""
        while self.state in (ConsumerState.READY, ConsumerState.RESUMING):
            lanes = await self._lanes_to_read()
            try:
                frame = await lanes.read()
            except _MALFORMED as error:
                self._reading = False
                self._changed.set()
                if self._lanes is lanes and not self._rides_out(lanes, error):
                    raise
                continue
            self._reading = False
            self._changed.set()
            if frame is None:
                self._machine.stream_ended()
            elif records.is_record(frame):
                ended = self._machine.record(records.decode(frame))
                self.ring.end()
                await lanes.first.write_frame(records.encode(ended))
                await lanes.first.finish()
            else:
                obj = decode_object(frame, self.provision.object_spec)
                self._machine.object(obj)
                self._machine.took(len(frame))
                self.objects += 1
                self.bytes += len(obj.payload)
                await self.ring.put(obj)
                if (acknowledgement := self._machine.acknowledgement()) is not None:
                    with suppress(PpError):  # the next read sees why
                        await lanes.first.write_frame(records.encode(acknowledgement))

    async def _lanes_to_read(self) -> InLanes:
        while self._lanes is None:
            if self._machine.fault is not None:
                raise self._machine.fault
            was_stopped = self.is_stopped()
            try:
                async with asyncio.timeout(self._time_left()):
                    await self._until(lambda: self._lanes is not None)
            except TimeoutError:
                if not self._is_excused(was_stopped):
                    raise self._too_late() from None
        self._reading = True
        return self._lanes

    # ---- a connection that was lost

    def _rides_out(self, lanes: InLanes, error: Exception) -> bool:
        """Whether the edge goes on although reading `lanes` failed: on those that took their place, or will."""
        with self._lock:
            if self._lanes is not lanes:
                return self._machine.fault is None and not self._interrupted
            if self._closing is not None or not isinstance(error, LinkBroken) or not self._machine.broken():
                return False
            self._lanes = None
            self._broken_at = time.monotonic()
        log.info("%s: waiting to resume: %s", self._machine.title, error)
        if self.redial is not None:
            self._begin(self._redialled(self.redial), "redial for")
        return True

    async def _redialled(self, redial: Callable[[], Awaitable[None]]) -> None:
        with suppress(PpError):  # the producer may be luckier
            await redial()

    async def _take_over(self, stream: FrameStream, attempt: int) -> None:
        try:
            async with asyncio.timeout(self._resume_s):
                while self._reading:
                    self._changed.clear()
                    await self._changed.wait()
            with self._lock:
                if attempt != self._machine.attempt:
                    return
                answer = self._machine.resumed()
            self._answers = stream
            await stream.write_frame(records.encode(answer))
            await self._install(attempt)
            log.info("%s: resumed at object %d", self._machine.title, answer.next)
        except (TimeoutError, PpError, FrameError, records.RecordMalformed) as error:
            log.info("%s: could not be resumed this time: %s", self._machine.title, error)
            await stream.abort()

    async def _install(self, attempt: int) -> None:
        """Wait for all lanes of the newest stream, and have them read."""
        assert self._gathering is not None
        _, count, streams = self._gathering
        try:
            async with asyncio.timeout(_GATHER_S):
                await self._until(lambda: len(streams) == count or attempt != self._machine.attempt)
        except TimeoutError:
            raise self._machine.error(f"{len(streams)} of {count} lanes were opened within {_GATHER_S:g} s") from None
        if self._machine.fault is not None or attempt != self._machine.attempt:
            return
        lanes = InLanes(
            [streams[number] for number in range(count)], HEADER.size + self.provision.object_spec.max_extent
        )
        if self.threaded:
            lanes.hand_to_thread()
        with self._lock:
            self._lanes = lanes
            self._broken_at = 0.0
        self._opened = True
        self._lanes_came.set()
        self._changed.set()

    def _is_excused(self, was_stopped: bool) -> bool:
        """Whether the producer, not back in time, was stopped during that time: then it has all of it again."""
        if not (was_stopped or self.is_stopped()):
            return False
        self._broken_at = time.monotonic()
        return True

    def _time_left(self) -> float:
        """Seconds that the producer still has to come back."""
        return max(0.0, self._broken_at + self._resume_s - time.monotonic())

    def _too_late(self) -> PeerLost:
        name = self._machine.peer_name
        return PeerLost(f"the connection to {name} was lost, and not resumed within {self._resume_s:g} s", peer=name)

    def _begin(self, work: Awaitable[None], what: str) -> None:
        async def run() -> None:
            await work

        task = self._spawn(run(), f"{what} {self._machine.title}")
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    # ---- the end

    async def _tell_producer(self) -> None:
        stream = self._answers
        assert stream is not None
        if self._closing is not None:
            record: records.Record = records.Closed(self._closing)
        else:
            record = records.Fault(str(self._machine.fault))
        with suppress(TimeoutError, PpError):
            async with asyncio.timeout(1.0):
                await stream.write_frame(records.encode(record))
                await stream.finish()
        await (self._lanes.stop_reading() if self._lanes is not None else stream.stop_reading())
        await stream.wait_delivered(0.5)

    def _fault(self, error: EdgeFaulted) -> None:
        with self._lock:
            fault = self._machine.fail(error)
        self.ring.close(fault)
        if self.state is ConsumerState.FAULTED and not self.faulted.done():
            self.faulted.set_result(fault)
        self._lanes_came.set()
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return when it holds, or the edge is over."""
        while not condition() and self._machine.fault is None:
            self._changed.clear()
            await self._changed.wait()
