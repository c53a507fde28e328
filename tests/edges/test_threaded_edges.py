"""Edges whose objects a plain thread takes and sends, over real iroh: everything that the task form promises too."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.edges.machine import ConsumerState, ProducerState
from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import ObjectSpec, RingSpec
from ppsmoke.objects import StreamObject, encode_header
from tests.edges.kit import HIDDEN, activation, inbound, outbound
from tests.transport.kit import PATIENCE_S, RUN_ID, eventually, peer, run_clean

WINDOW = 1_250_000
"""Bytes that the transport takes for a stream nobody reads."""


class Pair:
    """Both ends of an edge and the meshes they live in."""

    def __init__(self, producer: Any, consumer: Any, out: OutboundEdge, into: InboundEdge) -> None:
        self.producer = producer
        self.consumer = consumer
        self.out = out
        self.into = into

    def send(self, obj: StreamObject) -> None:
        """In a thread."""
        self.out.prepare(obj)
        self.out.send(obj.payload)

    def take(self) -> StreamObject | None:
        """In a thread."""
        record = self.into.take()
        return None if record is None else self.into.admit(record)


@asynccontextmanager
async def pair(spec: ObjectSpec = HIDDEN, into_spec: ObjectSpec | None = None) -> AsyncIterator[Pair]:
    async with peer("stage 0") as producer, peer("stage 1") as consumer:
        producer.knows(consumer)
        ring = RingSpec(max_bytes=1 << 26)
        into = InboundEdge(RUN_ID, inbound("stage 0", spec=into_spec or spec, ring=ring), threaded=True)
        EdgeAcceptor(consumer.mesh).expect(into)
        out = OutboundEdge(producer.mesh, RUN_ID, outbound("stage 1", spec=spec, ring=ring), threaded=True)
        await asyncio.gather(out.open(PATIENCE_S), into.wait_ready(PATIENCE_S))
        try:
            yield Pair(producer, consumer, out, into)
        finally:
            await out.close("test over")
            await into.close("test over")


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(work, *arguments), PATIENCE_S)


def test_objects_arrive_whole_and_in_order_and_the_end_is_orderly() -> None:
    async def work() -> None:
        spec = replace_extent(64 * 4 * 16384)
        async with pair(spec) as edge:
            # Also two in one read, one in several, and one bigger than a write.
            sent = [activation(n, rows=rows) for n, rows in enumerate([1, 1, 700, 1, 6000, 2, 128, 1])]
            sent = [replace(obj, payload=os.urandom(len(obj.payload))) for obj in sent]

            def produce() -> None:
                for obj in sent:
                    edge.send(obj)

            producing = asyncio.create_task(in_thread(produce))
            received = [await in_thread(edge.take) for _ in sent]
            await producing
            assert received == sent
            assert (edge.out.objects, edge.into.objects) == (len(sent), len(sent))
            assert edge.out.bytes == edge.into.bytes == sum(len(obj.payload) for obj in sent)
            await edge.out.close("done")
            assert await in_thread(edge.take) is None
            assert edge.into.state is ConsumerState.ENDED
            assert not edge.into.faulted.done()
            assert not edge.out.faulted.done()

    run_clean(work())


def test_a_consumer_that_does_not_take_blocks_the_producer_and_nothing_is_lost() -> None:
    async def work() -> None:
        async with pair() as edge:
            size, count = 64 * 4 * 256, 60

            def produce() -> None:
                for number in range(count):
                    edge.send(activation(number, rows=256))

            producing = asyncio.create_task(in_thread(produce))
            await eventually(lambda: edge.out.bytes > WINDOW - 2 * size)
            done, _ = await asyncio.wait((producing,), timeout=0.5)
            assert not done
            assert edge.out.bytes <= WINDOW + size
            assert [(await in_thread(edge.take)).sequence for _ in range(count)] == list(range(count))
            await producing

    run_clean(work())


@pytest.mark.parametrize("how", ["close", "interrupt"])
@pytest.mark.parametrize("waiting", ["to take", "to send"])
def test_a_thread_that_waits_is_woken_at_once(waiting: str, how: str) -> None:
    async def work() -> None:
        async with pair() as edge:
            before = set(threading.enumerate())
            end: InboundEdge | OutboundEdge = edge.into if waiting == "to take" else edge.out

            def wait() -> None:
                if waiting == "to take":
                    edge.take()
                for number in range(100):
                    edge.send(activation(number, rows=1024))

            thread = asyncio.create_task(in_thread(wait))
            if waiting == "to send":
                await eventually(lambda: edge.out.bytes > WINDOW // 2)
            await asyncio.wait((thread,), timeout=0.2)
            assert not thread.done()
            if how == "interrupt":
                end.interrupt()
            else:
                await end.close("stopped")
            with pytest.raises(EdgeFaulted, match="it was told to stop" if how == "interrupt" else "closed: stopped"):
                await asyncio.wait_for(thread, 2.0)
            with pytest.raises(EdgeFaulted):
                await (in_thread(edge.take) if waiting == "to take" else in_thread(edge.send, activation(1)))
            await asyncio.get_running_loop().shutdown_default_executor()
            await eventually(lambda: set(threading.enumerate()) <= before)

    run_clean(work())


@pytest.mark.parametrize("ends", ["left", "closed"])
def test_a_thread_that_takes_learns_why_its_peer_has_gone(ends: str) -> None:
    async def work() -> None:
        async with pair() as edge:
            taking = asyncio.create_task(in_thread(edge.take))
            await asyncio.wait((taking,), timeout=0.1)
            if ends == "left":
                await edge.producer.mesh.close("out of memory")
                with pytest.raises(EdgeFaulted, match="stage 0 left: out of memory"):
                    await taking
                await eventually(edge.into.faulted.done)
            else:
                await edge.out.close("stopped")
                assert await taking is None

    run_clean(work())


def test_a_thread_that_sends_learns_why_its_consumer_has_gone() -> None:
    async def work() -> None:
        async with pair() as edge:
            await edge.into.close("stopped")
            await eventually(lambda: edge.out.state is ProducerState.CLOSED)
            with pytest.raises(EdgeFaulted, match="stage 1 closed it: stopped"):
                await in_thread(edge.send, activation(0))
        async with pair() as edge:

            def flood() -> None:
                for number in range(100):
                    edge.send(activation(number, rows=1024))

            flooding = asyncio.create_task(in_thread(flood))
            await eventually(lambda: edge.out.bytes > WINDOW // 2)
            await edge.consumer.mesh.close("out of memory")
            with pytest.raises(EdgeFaulted, match="stage 1 left: out of memory"):
                await flooding
            await eventually(edge.out.faulted.done)

    run_clean(work())


def test_what_comes_out_of_order_is_not_sent() -> None:
    async def work() -> None:
        async with pair() as edge:
            await in_thread(edge.send, activation(0))
            with pytest.raises(EdgeFaulted, match="came where sequence 1 part 0 was due") as caught:
                await in_thread(edge.send, activation(5))
            assert edge.out.faulted.result() is caught.value

    run_clean(work())


def test_a_payload_of_another_size_than_was_prepared_is_a_fault() -> None:
    async def work() -> None:
        async with pair() as edge:

            def send() -> None:
                edge.out.prepare(activation(0))
                edge.out.send(bytes(8))

            with pytest.raises(EdgeFaulted, match="an object of 256 bytes was to be written, not 8"):
                await in_thread(send)

    run_clean(work())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"edge_id": 9}, "an object of edge 9 came on edge 1"),
        ({"sequence": 3}, r"came where a new request must start with sequence 0"),
        ({"seq_len": 2}, "should carry 512 bytes, not 256"),
    ],
)
def test_what_the_edge_does_not_allow_is_taken_but_not_admitted(change: dict[str, int], reason: str) -> None:
    async def work() -> None:
        async with pair() as edge:
            from_elsewhere = replace(activation(0), **change)  # type: ignore[arg-type]
            await write_raw(edge, from_elsewhere)
            record = await in_thread(edge.into.take)
            with pytest.raises(EdgeFaulted, match=reason) as caught:
                await in_thread(edge.into.admit, record)
            fault = await asyncio.wait_for(edge.out.faulted, PATIENCE_S)
            assert str(caught.value) in fault.what, "the producer is told"

    run_clean(work())


@pytest.mark.parametrize("frame", [b"P" * 20, b"PP" + bytes(60), b"\0" * 48, b"{}", b""])
def test_a_frame_that_is_no_object_is_never_handed_out(frame: bytes) -> None:
    async def work() -> None:
        async with pair() as edge:
            assert edge.out._lanes is not None
            await edge.out._lanes.first.write_frame(frame)
            with pytest.raises(EdgeFaulted):
                await in_thread(edge.into.take)

    run_clean(work())


def test_a_frame_over_the_edges_limit_is_refused_before_it_is_read() -> None:
    async def work() -> None:
        async with pair(replace_extent(64 * 4 * 8192), HIDDEN) as edge:
            sending = asyncio.create_task(in_thread(edge.send, activation(0, rows=8000)))
            with pytest.raises(EdgeFaulted, match="a frame of 2048048 bytes was announced"):
                await in_thread(edge.take)
            with pytest.raises(EdgeFaulted, match="stage 1 reports"):
                await sending

    run_clean(work())


def replace_extent(max_extent: int) -> ObjectSpec:
    return ObjectSpec(payload="hidden", hidden_dim=64, max_extent=max_extent)


async def write_raw(edge: Pair, obj: StreamObject) -> None:
    """An object past the producer's own checks."""
    assert edge.out._lanes is not None
    await edge.out._lanes.first.write_frame(encode_header(obj), obj.payload)
