"""Edges whose connection is lost in the middle, over real iroh: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge, lanes
from ppsmoke.edges import producer as producer_module
from ppsmoke.edges.machine import ConsumerState, ProducerState
from ppsmoke.edges.retained import ACK_OBJECTS
from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import RingSpec
from ppsmoke.objects import StreamObject
from ppsmoke.transport.blocking import CallsCancelled
from ppsmoke.transport.link import Outage
from ppsmoke.transport.stall import LEAST_S, PathCounts
from tests.edges.kit import activation, inbound, outbound
from tests.transport.kit import PATIENCE_S, RUN_ID, Peer, eventually, peer, run_clean

FORMS = pytest.mark.parametrize("threaded", [False, True], ids=["tasks", "threads"])


class Pair:
    """Both ends of an edge and the meshes they live in, in either form."""

    def __init__(self, producer: Peer, consumer: Peer, out: OutboundEdge, into: InboundEdge) -> None:
        self.producer = producer
        self.consumer = consumer
        self.out = out
        self.into = into
        self.outages: list[Outage] = []
        out.on_resumed = self.outages.append

    async def send(self, obj: StreamObject) -> None:
        if not self.out.threaded:
            await self.out.write(obj)
            return
        await asyncio.wait_for(asyncio.to_thread(self._send, obj), PATIENCE_S)

    async def take(self) -> StreamObject | None:
        if not self.into.threaded:
            return await asyncio.wait_for(self.into.next(), PATIENCE_S)
        taken: StreamObject | None = await asyncio.wait_for(asyncio.to_thread(self._take), PATIENCE_S)
        return taken

    def _send(self, obj: StreamObject) -> None:
        self.out.prepare(obj)
        self.out.send(obj.payload)

    def _take(self) -> StreamObject | None:
        record = self.into.take()
        return None if record is None else self.into.admit(record)

    def cut(self, by: str) -> None:
        """As when one side finds the path dead: its connection is closed, and the other side hears of it."""
        if by == "producer":
            self.producer.mesh.break_link(self.consumer.id, "cut by a test")
        elif by == "consumer":
            self.consumer.mesh.break_link(self.producer.id, "cut by a test")
        elif (connection := self.producer.mesh.connection_of(self.consumer.id)) is not None:  # neither mesh did it
            connection.close(0, b"")


@asynccontextmanager
async def pair(threaded: bool, *, resume_s: float = PATIENCE_S, back: bool = True) -> AsyncIterator[Pair]:
    """`back`: the consumer knows the producer's address too."""
    ring = RingSpec(max_bytes=1 << 22)
    async with peer("stage 0") as producer, peer("stage 1") as consumer:
        producer.knows(consumer)
        into = InboundEdge(RUN_ID, inbound("stage 0", ring=ring), threaded=threaded, resume_s=resume_s)
        EdgeAcceptor(consumer.mesh).expect(into)
        out = OutboundEdge(producer.mesh, RUN_ID, outbound("stage 1", ring=ring), threaded=threaded, resume_s=resume_s)
        made = Pair(producer, consumer, out, into)
        await asyncio.gather(out.open(PATIENCE_S), into.wait_ready(PATIENCE_S))
        try:
            yield made
        finally:
            await out.close("test over")
            await into.close("test over")


@FORMS
@pytest.mark.parametrize("by", ["producer", "consumer", "nobody"])
def test_objects_go_on_whole_and_in_order_wherever_the_connection_is_lost(by: str, threaded: bool) -> None:
    """Cut before and after writes, with objects under way, in flight and acknowledged, again and again."""

    async def work() -> None:
        async with pair(threaded) as edge:
            sent = [activation(n, rows=1 + 61 * (n % 4)) for n in range(60)]

            async def produce() -> None:
                for obj in sent:
                    if obj.sequence % 12 == 5:
                        edge.cut(by)
                    await edge.send(obj)
                    if obj.sequence % 12 == 9:
                        edge.cut(by)

            producing = asyncio.create_task(produce())
            assert [await edge.take() for _ in sent] == sent
            await producing
            assert not edge.out.faulted.done()
            assert not edge.into.faulted.done()
            assert len(edge.outages) >= 1
            await eventually(lambda: edge.out.state is ProducerState.READY)
            await eventually(lambda: len(edge.out._tasks) <= 2)  # what has ended is forgotten

    run_clean(work())


@FORMS
@pytest.mark.parametrize("by", ["producer", "consumer"])
def test_an_edge_whose_connection_is_lost_while_it_is_opened_is_opened_all_the_same(by: str, threaded: bool) -> None:
    """The consumer has no plan yet and holds the stream; then its connection goes."""

    async def work() -> None:
        async with peer("stage 0") as producer, peer("stage 1") as consumer:
            producer.knows(consumer)
            acceptor = EdgeAcceptor(consumer.mesh)
            out = OutboundEdge(producer.mesh, RUN_ID, outbound("stage 1"), threaded=threaded)
            into = InboundEdge(RUN_ID, inbound("stage 0"), threaded=threaded)
            edge = Pair(producer, consumer, out, into)
            opening = asyncio.create_task(out.open(PATIENCE_S))
            await eventually(lambda: acceptor._held == 1)
            edge.cut(by)
            await eventually(lambda: acceptor._held == 2)
            acceptor.expect(into)
            await asyncio.gather(opening, into.wait_ready(PATIENCE_S))
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            await out.close("test over")
            await into.close("test over")
            assert not into.faulted.done()

    run_clean(work())


@FORMS
def test_an_edge_that_waits_is_resumed_too(threaded: bool) -> None:
    """Nobody writes when the connection goes, and the consumer waits for the next object."""

    async def work() -> None:
        async with pair(threaded) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            taking = asyncio.create_task(edge.take())
            await asyncio.sleep(0)
            edge.cut("producer")
            await eventually(lambda: len(edge.outages) == 1)
            assert edge.outages[0].stall_s < PATIENCE_S
            await edge.send(activation(1))
            assert await taking == activation(1)

    run_clean(work())


def test_a_path_that_no_longer_answers_is_left_for_another_connection() -> None:
    """Nothing says that it is dead, but that what goes out stays without an answer."""

    async def work() -> None:
        async with pair(True) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            link = edge.producer.mesh._links[edge.consumer.id]
            went_out = count(1000)
            link.path_counts = lambda: PathCounts("0", next(went_out), 7, 0.001)  # type: ignore[method-assign]
            await eventually(lambda: len(edge.outages) == 1)
            assert edge.outages[0].stall_s >= LEAST_S
            assert edge.producer.mesh._links[edge.consumer.id] is not link
            await edge.send(activation(1))
            assert await edge.take() == activation(1)

    run_clean(work())


@FORMS
def test_what_was_written_into_a_connection_that_then_died_arrives(threaded: bool) -> None:
    """The transport had taken it, so the producer had been told that all is well."""

    async def work() -> None:
        async with pair(threaded) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            for number in (1, 2, 3):
                await edge.send(activation(number))
            edge.cut("producer")
            assert [await edge.take() for _ in range(3)] == [activation(n) for n in (1, 2, 3)]
            await eventually(lambda: len(edge.outages) == 1)
            await edge.send(activation(4))
            assert await edge.take() == activation(4)

    run_clean(work())


@FORMS
def test_a_producer_that_does_not_come_back_is_a_fault_after_the_time_it_has(threaded: bool) -> None:
    async def work() -> None:
        async with pair(threaded, resume_s=0.5) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            taking = asyncio.create_task(edge.take())
            await asyncio.sleep(0)
            edge.producer.mesh._addresses.clear()
            edge.consumer.mesh._addresses.clear()
            edge.cut("producer")
            with pytest.raises(EdgeFaulted, match=r"stage 0 was lost, and not resumed within 0\.5 s"):
                await taking
            fault = await asyncio.wait_for(edge.out.faulted, PATIENCE_S)
            assert "the connection to stage 1 was lost, and not resumed within 0.5 s" in fault.what
            assert edge.into.state is ConsumerState.FAULTED

    run_clean(work())


@FORMS
def test_a_peer_whose_process_is_stopped_is_waited_for(threaded: bool) -> None:
    """The user has stopped it, and may go on with it at any time."""

    async def work() -> None:
        async with pair(threaded, resume_s=0.2) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            taking = asyncio.create_task(edge.take())
            await asyncio.sleep(0)
            edge.producer.mesh.stopped.add(edge.consumer.id)
            edge.consumer.mesh.stopped.add(edge.producer.id)
            edge.producer.mesh._addresses.clear()
            edge.consumer.mesh._addresses.clear()
            edge.cut("producer")
            done, _ = await asyncio.wait((edge.out.faulted, taking), timeout=0.8)
            assert not done
            edge.producer.knows(edge.consumer)
            await edge.send(activation(1))
            assert await taking == activation(1)

    run_clean(work())


@FORMS
def test_a_peer_that_is_known_to_be_gone_is_not_waited_for(threaded: bool) -> None:
    """As when membership has declared it dead while the edge was resuming."""

    async def work() -> None:
        async with pair(threaded) as edge:
            edge.producer.mesh._addresses.clear()
            edge.consumer.mesh._addresses.clear()
            edge.cut("producer")
            await eventually(lambda: edge.out.state is ProducerState.RESUMING)
            edge.producer.mesh.give_up(edge.consumer.id, "it did not answer")
            fault = await asyncio.wait_for(edge.out.faulted, 2.0)
            assert "it did not answer" in fault.what

    run_clean(work())


@FORMS
@pytest.mark.parametrize("end", ["producer", "consumer"])
def test_an_edge_that_resumes_can_be_closed_at_once(end: str, threaded: bool) -> None:
    async def work() -> None:
        async with pair(threaded, resume_s=60.0) as edge:
            await edge.send(activation(0))
            assert await edge.take() == activation(0)
            edge.producer.mesh._addresses.clear()
            edge.consumer.mesh._addresses.clear()
            busy: asyncio.Task[Any] = asyncio.create_task(edge.take())
            await asyncio.sleep(0)
            edge.cut("producer")
            await eventually(lambda: edge.out.state is ProducerState.RESUMING)
            await eventually(lambda: edge.into.state is ConsumerState.RESUMING)
            sending = asyncio.create_task(edge.send(activation(1)))
            await asyncio.sleep(0.05)
            await asyncio.wait_for(edge.out.close("stopped") if end == "producer" else edge.into.close("stopped"), 2.0)
            if end == "consumer":
                with pytest.raises(EdgeFaulted, match="it was closed: stopped"):
                    await asyncio.wait_for(busy, 2.0)
                await edge.out.close("stopped")
            else:
                await edge.into.close("stopped")
                with pytest.raises(EdgeFaulted):
                    await asyncio.wait_for(busy, 2.0)
            await asyncio.wait((sending,), timeout=2.0)
            assert sending.done()
            sending.exception()

    run_clean(work())


@FORMS
def test_a_long_way_has_lanes_and_an_outage_changes_nothing_in_what_arrives(
    threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LONG_ROUND_TRIP_S", -1.0)

    async def work() -> None:
        async with pair(threaded) as edge:
            assert edge.out._lanes is not None
            assert len(edge.out._lanes.streams) == lanes.LANES
            # One, two and many records an object.
            sent = [activation(n, rows=(1, 600, 3900, 2)[n % 4]) for n in range(24)]

            async def produce() -> None:
                for obj in sent:
                    if obj.sequence in (7, 18):
                        edge.cut("producer")
                    await edge.send(obj)

            producing = asyncio.create_task(produce())
            assert [await edge.take() for _ in sent] == sent
            await producing
            assert edge.outages
            await eventually(lambda: edge.out.objects == len(sent))
            await edge.out.close("done")
            assert await edge.take() is None
            assert edge.into.state is ConsumerState.ENDED

    run_clean(work())


@FORMS
def test_a_closed_edge_waits_until_the_consumer_has_said_that_it_ended(
    threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with pair(threaded) as edge:
            assert edge.out._lanes is not None
            assert edge.into._lanes is not None
            delivered, held = asyncio.Event(), threading.Event()
            stream, answers = edge.out._lanes.first, edge.into._lanes
            wait_delivered, write, answer = stream.wait_delivered, answers.first.write_frame, answers.answer_in_thread

            async def note_delivered(deadline_s: float) -> bool:
                done = await wait_delivered(deadline_s)
                delivered.set()
                return done

            async def write_late(head: bytes, payload: bytes = b"") -> None:
                await asyncio.to_thread(held.wait)
                await write(head, payload)

            def answer_late(record: bytes) -> None:
                held.wait()
                answer(record)

            stream.wait_delivered = note_delivered  # type: ignore[method-assign]
            answers.first.write_frame = write_late  # type: ignore[method-assign]
            answers.answer_in_thread = answer_late  # type: ignore[method-assign]
            taking, closing = asyncio.create_task(edge.take()), asyncio.create_task(edge.out.close("done"))
            try:
                await asyncio.wait_for(delivered.wait(), PATIENCE_S)
                await asyncio.wait((closing,), timeout=0.2)
                assert not closing.done()
            finally:
                held.set()
            await asyncio.wait_for(closing, PATIENCE_S)
            assert await taking is None
            assert edge.into.state is ConsumerState.ENDED

    monkeypatch.setattr(producer_module, "_ORDERLY_S", PATIENCE_S)
    run_clean(work())


def test_an_end_is_orderly_for_a_consumer_whose_answer_nobody_waits_for() -> None:
    async def work() -> None:
        async with pair(True) as edge:
            assert edge.into._lanes is not None

            def answer(_record: bytes) -> None:
                raise CallsCancelled

            edge.into._lanes.answer_in_thread = answer  # type: ignore[method-assign]
            taking = asyncio.create_task(edge.take())
            await edge.out.close("done")
            assert await taking is None

    run_clean(work())


def test_an_acknowledgement_that_comes_late_leaves_an_edge_its_orderly_end() -> None:
    async def work() -> None:
        async with pair(False) as edge:
            assert edge.into._lanes is not None
            answers, closing = edge.into._lanes.first, asyncio.Event()
            write, end = answers.write_frame, edge.out.ring.end

            async def write_late(head: bytes, payload: bytes = b"") -> None:
                await closing.wait()
                await write(head, payload)

            def end_later() -> None:
                closing.set()
                asyncio.get_running_loop().call_later(0.2, end)

            answers.write_frame = write_late  # type: ignore[method-assign]
            edge.out.ring.end = end_later  # type: ignore[method-assign]
            sent = [activation(number) for number in range(ACK_OBJECTS)]
            for obj in sent:
                await edge.send(obj)
            assert [await edge.take() for _ in sent] == sent
            await eventually(lambda: edge.out.objects == len(sent))
            await edge.out.close("done")
            assert await edge.take() is None
            assert edge.into.state is ConsumerState.ENDED

    run_clean(work())


def test_a_producer_keeps_only_what_was_not_acknowledged() -> None:
    async def work() -> None:
        async with pair(True) as edge:
            for number in range(200):
                await edge.send(activation(number))
                assert await edge.take() == activation(number)
            await eventually(lambda: edge.out._machine.retained.first >= 192)
            assert edge.out._machine.retained.nbytes <= 16 * 256

    run_clean(work())
