"""Both ends of an edge over real iroh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge, producer
from ppsmoke.edges.machine import ConsumerState, ProducerState
from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, PeerLost
from ppsmoke.messages import EdgeKind, ObjectSpec, RingSpec
from ppsmoke.transport.framing import READ_BYTES
from tests.edges.kit import HIDDEN, RING, TOKENS, activation, inbound, outbound, token
from tests.transport.kit import PATIENCE_S, RUN_ID, Peer, eventually, peer, run_clean


class Pair:
    def __init__(self, producer: Peer, consumer: Peer, out: OutboundEdge, into: InboundEdge) -> None:
        self.producer = producer
        self.consumer = consumer
        self.out = out
        self.into = into

    async def open(self) -> None:
        await asyncio.gather(self.out.open(PATIENCE_S), self.into.wait_ready(PATIENCE_S))

    async def take(self, count: int) -> list[int]:
        taken = []
        for _ in range(count):
            obj = await asyncio.wait_for(self.into.next(), PATIENCE_S)
            assert obj is not None
            taken.append(obj.sequence)
        return taken


@asynccontextmanager
async def pair(*, spec: ObjectSpec = HIDDEN, ring: RingSpec = RING) -> AsyncIterator[Pair]:
    async with peer("stage 0") as producer, peer("stage 1") as consumer:
        producer.knows(consumer)
        into = InboundEdge(RUN_ID, inbound("stage 0", spec=spec, ring=ring))
        EdgeAcceptor(consumer.mesh).expect(into)
        out = OutboundEdge(producer.mesh, RUN_ID, outbound("stage 1", spec=spec, ring=ring))
        try:
            yield Pair(producer, consumer, out, into)
        finally:
            await out.close("test over")
            await into.close("test over")


def test_objects_arrive_whole_and_in_order_and_the_end_is_orderly() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            sent = [activation(n, rows=1 + 97 * (n % 5)) for n in range(30)]

            async def produce() -> None:
                for obj in sent:
                    await edge.out.write(obj)
                await edge.out.finish(PATIENCE_S)

            producing = asyncio.create_task(produce())
            received = []
            while (obj := await asyncio.wait_for(edge.into.next(), PATIENCE_S)) is not None:
                received.append(obj)
            await producing
            assert received == sent
            assert (edge.out.objects, edge.into.objects) == (30, 30)
            assert edge.out.bytes == edge.into.bytes == sum(len(obj.payload) for obj in sent)
            assert edge.out.state is ProducerState.FINISHED
            assert edge.into.state is ConsumerState.ENDED
            assert not edge.out.faulted.done()
            assert not edge.into.faulted.done()

    run_clean(work())


def test_a_big_object_arrives_whole() -> None:
    async def work() -> None:
        spec = ObjectSpec(payload="hidden", hidden_dim=1024, max_extent=1024 * 4 * 2500)
        async with pair(spec=spec, ring=RingSpec(max_objects=2, max_bytes=spec.max_extent)) as edge:
            await edge.open()
            big = activation(0, rows=16 * 2500)
            big = type(big)(**{**{f: getattr(big, f) for f in big.__slots__}, "seq_len": 2500})
            await edge.out.write(big)
            got = await asyncio.wait_for(edge.into.next(), PATIENCE_S)
            assert got == big

    run_clean(work())


def test_a_stopped_consumer_stops_the_producer_and_nothing_is_lost() -> None:
    """8 KiB objects; the consumer takes none at first: what is accepted stays bounded by the rings and one window."""

    async def work() -> None:
        ring = RingSpec(max_objects=8, max_bytes=1 << 20)
        async with pair(ring=ring) as edge:
            await edge.open()
            count, size = 1000, 64 * 4 * 32
            written = 0

            async def produce() -> None:
                nonlocal written
                for number in range(count):
                    await edge.out.write(activation(number, rows=32))
                    written += 1
                await edge.out.finish(60)

            producing = asyncio.create_task(produce())
            await eventually(lambda: edge.into.ring.peak_objects == len(edge.out.ring) == ring.max_objects)
            still, before = 0, -1
            while still < 3:  # until nothing has moved for a while; the machine may be busy
                await asyncio.sleep(0.4)
                still = still + 1 if before == written and len(edge.out.ring) == ring.max_objects else 0
                before = written
            assert written < count
            window = 1_300_000
            # And what one read brings in, and an object in hand at each end.
            assert written * size <= 2 * ring.max_objects * size + window + READ_BYTES + 2 * size
            assert edge.into.ring.peak_objects == ring.max_objects
            assert len(edge.out.ring) == ring.max_objects
            assert await edge.take(count) == list(range(count))
            assert await asyncio.wait_for(edge.into.next(), PATIENCE_S) is None
            await producing
            assert edge.into.ring.peak_objects <= ring.max_objects
            assert edge.out.ring.peak_objects <= ring.max_objects
            assert edge.into.ring.peak_bytes <= ring.max_bytes

    run_clean(work())


def test_a_blocked_edge_blocks_neither_messages_nor_other_edges() -> None:
    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            acceptor = EdgeAcceptor(b.mesh)
            slow = InboundEdge(RUN_ID, inbound("stage 0", edge_id=1))
            quick = InboundEdge(RUN_ID, inbound("stage 0", edge_id=2, kind=EdgeKind.FEEDBACK, spec=TOKENS))
            acceptor.expect(slow)
            acceptor.expect(quick)
            slow_out = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", edge_id=1))
            quick_out = OutboundEdge(
                a.mesh, RUN_ID, outbound("stage 1", edge_id=2, kind=EdgeKind.FEEDBACK, spec=TOKENS)
            )
            await slow_out.open(PATIENCE_S)
            await quick_out.open(PATIENCE_S)

            async def flood() -> None:
                for number in range(200):
                    await slow_out.write(activation(number, rows=256))

            flooding = asyncio.create_task(flood())
            await eventually(lambda: len(slow_out.ring) == RING.max_objects)
            for number in range(10):
                await quick_out.write(token(number, number, edge_id=2))
                got = await asyncio.wait_for(quick.next(), PATIENCE_S)
                assert got is not None
                assert got.tokens == [number]
                await a.mesh.send(b.id, "control", {"number": number})
            await b.events.until(lambda: len(b.events.messages) == 10)
            flooding.cancel()
            for edge in (slow_out, quick_out, slow, quick):
                await edge.close("test over")

    run_clean(work())


@pytest.mark.parametrize(
    ("planned", "asked", "run_id", "reason"),
    [
        ({}, {}, "ee" * 16, "the run id is not the active one"),
        ({}, {"edge_id": 7}, RUN_ID, "there is no inbound edge 7 here"),
        ({"producer": "stage 2"}, {}, RUN_ID, "the planned producer of edge 1 is stage 2"),
        ({}, {"kind": EdgeKind.FEEDBACK}, RUN_ID, "edge 1 is Activation, not Feedback"),
    ],
)
def test_a_stream_that_is_not_planned_is_refused_and_the_right_one_still_serves(
    planned: dict[str, str], asked: dict[str, object], run_id: str, reason: str
) -> None:
    async def work() -> None:
        producer = planned.get("producer", "stage 0")
        async with peer("stage 0") as a, peer("stage 1") as b, peer(producer if planned else "stage 2") as c:
            a.knows(b)
            c.knows(b)
            into = InboundEdge(RUN_ID, inbound(producer))
            EdgeAcceptor(b.mesh).expect(into)
            wrong = OutboundEdge(a.mesh, run_id, outbound("stage 1", **asked))  # type: ignore[arg-type]
            with pytest.raises(EdgeFaulted, match=f"stage 1 refused the edge: {reason}"):
                await wrong.open(PATIENCE_S)
            assert wrong.faulted.done()
            assert into.state is ConsumerState.WAITING
            right = OutboundEdge((c if planned else a).mesh, RUN_ID, outbound("stage 1"))
            await right.open(PATIENCE_S)
            await right.write(activation(0))
            assert await asyncio.wait_for(into.next(), PATIENCE_S) == activation(0)
            second = OutboundEdge((c if planned else a).mesh, RUN_ID, outbound("stage 1"))
            with pytest.raises(EdgeFaulted, match="edge 1 has had its stream"):
                await second.open(PATIENCE_S)
            await right.write(activation(1))
            assert await asyncio.wait_for(into.next(), PATIENCE_S) == activation(1)
            for edge in (wrong, right, second, into):
                await edge.close("test over")

    run_clean(work())


def test_a_stream_that_comes_before_its_plan_is_held_and_then_accepted() -> None:
    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            acceptor = EdgeAcceptor(b.mesh)
            out = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1"))
            opening = asyncio.create_task(out.open(PATIENCE_S))
            await eventually(lambda: acceptor._held == 1)
            into = InboundEdge(RUN_ID, inbound("stage 0"))
            acceptor.expect(into)
            await opening
            await out.close("test over")
            await into.close("test over")

    run_clean(work())


def test_a_stream_held_too_long_or_one_too_many_is_refused() -> None:
    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            EdgeAcceptor(b.mesh, hold_s=0.5, max_held=1)
            first = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", edge_id=1))
            second = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", edge_id=2))
            outcomes = await asyncio.gather(first.open(PATIENCE_S), second.open(PATIENCE_S), return_exceptions=True)
            assert all(isinstance(outcome, EdgeFaulted) for outcome in outcomes), outcomes
            texts = sorted(str(outcome).partition("refused the edge: ")[2] for outcome in outcomes)
            assert texts == ["no run is active here", "no run is active here, and too many streams wait for one"]
            await first.close("test over")
            await second.close("test over")

    run_clean(work())


def test_nobody_opens_an_edge_within_the_deadline() -> None:
    async def work() -> None:
        async with pair() as edge:
            with pytest.raises(DeadlineExceeded, match=r"stage 0 did not open it within 0\.2 s") as caught:
                await edge.into.wait_ready(0.2)
            assert (caught.value.peer, caught.value.phase) == ("stage 0", "open edge")

    run_clean(work())


def test_a_consumer_that_never_accepts_ends_the_open_at_its_deadline() -> None:
    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            EdgeAcceptor(b.mesh)
            out = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1"))
            with pytest.raises(DeadlineExceeded, match=r"stage 1 did not accept it within 0\.5 s"):
                await out.open(0.5)
            await out.close("test over")

    run_clean(work())


def test_an_object_out_of_order_faults_both_ends_with_the_reason() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            await edge.out.write(activation(0))
            with pytest.raises(EdgeFaulted, match="came where sequence 1 part 0 was due") as caught:
                await edge.out.write(activation(5))
            assert edge.out.faulted.result() is caught.value
            with pytest.raises(EdgeFaulted):
                await edge.out.write(activation(1))

    run_clean(work())


def test_a_producer_that_sends_what_the_edge_does_not_allow_learns_the_reason() -> None:
    async def work() -> None:
        wide = ObjectSpec(payload="hidden", hidden_dim=64, max_extent=HIDDEN.max_extent * 2)
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            into = InboundEdge(RUN_ID, inbound("stage 0", ring=RingSpec(max_bytes=8 << 20)))
            EdgeAcceptor(b.mesh).expect(into)
            out = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", spec=wide, ring=RingSpec(max_bytes=8 << 20)))
            await out.open(PATIENCE_S)
            await out.write(activation(0, rows=8000))
            fault = await asyncio.wait_for(out.faulted, PATIENCE_S)
            assert "stage 1 reports: edge 1 (Activation from stage 0): a frame of 2048048 bytes" in fault.what
            with pytest.raises(EdgeFaulted, match="a frame of 2048048 bytes was announced"):
                await into.next()
            assert into.faulted.done()
            await out.close("test over")
            await into.close("test over")

    run_clean(work())


def test_a_peer_that_leaves_in_the_middle_faults_the_edge_with_its_reason() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            await edge.out.write(activation(0))
            await edge.take(1)
            waiting = asyncio.create_task(edge.into.next())
            await edge.producer.mesh.close("out of memory")
            with pytest.raises(EdgeFaulted, match="stage 0 left: out of memory"):
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert edge.into.faulted.done()
            assert edge.out.faulted.done()

    run_clean(work())


def test_closing_the_producing_end_is_an_orderly_end_for_the_consumer() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            await edge.out.write(activation(0))
            await edge.take(1)
            await edge.out.close("stopped")
            assert await asyncio.wait_for(edge.into.next(), PATIENCE_S) is None
            assert not edge.into.faulted.done()
            assert not edge.out.faulted.done()
            with pytest.raises(EdgeFaulted, match="it was closed: stopped"):
                await edge.out.write(activation(1))

    run_clean(work())


def test_closing_the_consuming_end_is_no_fault_until_somebody_writes() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            await edge.into.close("stopped")
            await eventually(lambda: edge.out.state is not ProducerState.READY)
            assert edge.out.state is ProducerState.CLOSED
            assert not edge.out.faulted.done()
            with pytest.raises(EdgeFaulted, match="stage 1 closed it: stopped"):
                await edge.out.write(activation(0))
            with pytest.raises(EdgeFaulted, match="it was closed: stopped"):
                await edge.into.next()

    run_clean(work())


def test_a_writer_that_waits_learns_that_the_consumer_closed() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()

            async def flood() -> None:
                for number in range(100):
                    await edge.out.write(activation(number, rows=256))

            flooding = asyncio.create_task(flood())
            await eventually(lambda: len(edge.out.ring) == RING.max_objects)
            await edge.into.close("stopped")
            with pytest.raises(EdgeFaulted, match="stage 1 closed it: stopped"):
                await asyncio.wait_for(flooding, PATIENCE_S)

    run_clean(work())


def test_closing_a_producer_that_is_blocked_breaks_the_edge_and_does_not_hang() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.open()

            async def flood() -> None:
                for number in range(100):
                    await edge.out.write(activation(number, rows=1024))

            flooding = asyncio.create_task(flood())
            await eventually(lambda: len(edge.out.ring) == RING.max_objects)
            await asyncio.wait_for(edge.out.close("stopped"), PATIENCE_S)
            with pytest.raises(EdgeFaulted, match="it was closed: stopped"):
                await flooding

            # A full ring keeps the consumer from reading: it hears of the end behind what it has taken.
            async def take_all() -> None:
                while await asyncio.wait_for(edge.into.next(), PATIENCE_S):
                    pass

            with pytest.raises(EdgeFaulted, match="broke off a stream"):
                await take_all()
            assert "broke off a stream" in edge.into.faulted.result().what

    run_clean(work())


def test_closing_does_not_wait_for_a_stream_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the consumer was told to stop a moment before: the finish cannot be written any more."""
    monkeypatch.setattr(producer, "_ORDERLY_S", 100 * PATIENCE_S)

    async def gone(_head: bytes, _payload: bytes = b"") -> None:
        raise PeerLost("the consumer reads no more")

    async def work() -> None:
        async with pair() as edge:
            await edge.open()
            assert edge.out._lanes is not None
            monkeypatch.setattr(edge.out._lanes.first, "write_frame", gone)
            await asyncio.wait_for(edge.out.close("stopped"), PATIENCE_S)

    run_clean(work())
