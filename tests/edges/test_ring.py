from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ppsmoke.edges.ring import Ring
from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import RingSpec
from tests.edges.kit import activation

ROW = 64 * 4


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (RingSpec(max_objects=3, max_bytes=100 * ROW), 3),
        (RingSpec(max_objects=100, max_bytes=4 * ROW), 4),
        (RingSpec(max_objects=100, max_bytes=4 * ROW + 1), 4),
        (RingSpec(max_objects=1, max_bytes=ROW), 1),
    ],
)
def test_a_full_ring_makes_the_writer_wait_and_keeps_the_order(spec: RingSpec, fits: int) -> None:
    async def work() -> None:
        ring = Ring(spec)
        put = 0

        async def write() -> None:
            nonlocal put
            for number in range(10):
                await ring.put(activation(number))
                put += 1
            ring.end()

        writing = asyncio.create_task(write())
        await settle()
        assert put == len(ring) == fits
        taken = []
        while (obj := await ring.get()) is not None:
            taken.append(obj.sequence)
        assert taken == list(range(10))
        assert (ring.peak_objects, ring.peak_bytes) == (fits, fits * ROW)
        assert (len(ring), ring.nbytes) == (0, 0)
        await writing

    run(work)


def test_an_object_that_can_never_fit_is_a_fault_and_not_a_wait() -> None:
    async def work() -> None:
        ring = Ring(RingSpec(max_objects=3, max_bytes=2 * ROW))
        with pytest.raises(EdgeFaulted, match="has 768 bytes, more than the ring of 512"):
            await ring.put(activation(0, rows=3))

    run(work)


def test_a_close_wakes_reader_and_writer_with_the_first_error() -> None:
    async def work() -> None:
        full, empty = Ring(RingSpec(max_objects=1)), Ring(RingSpec())
        await full.put(activation(0))
        writer = asyncio.create_task(full.put(activation(1)))
        reader = asyncio.create_task(empty.get())
        await settle()
        for ring in (full, empty):
            ring.close(EdgeFaulted("first"))
            ring.close(EdgeFaulted("second"))
        for task in (writer, reader):
            with pytest.raises(EdgeFaulted, match="first"):
                await task
        with pytest.raises(EdgeFaulted, match="first"):
            await full.get()
        assert (len(full), full.nbytes) == (0, 0)

    run(work)


def test_after_the_end_what_is_left_is_taken_and_nothing_is_put() -> None:
    async def work() -> None:
        ring = Ring(RingSpec())
        await ring.put(activation(0))
        ring.end()
        with pytest.raises(EdgeFaulted, match="written after the end"):
            await ring.put(activation(1))
        assert (await ring.get()) == activation(0)
        assert await ring.get() is None
        assert await ring.get() is None

    run(work)


def test_a_cancelled_get_takes_nothing() -> None:
    async def work() -> None:
        ring = Ring(RingSpec())
        reader = asyncio.create_task(ring.get())
        await settle()
        await ring.put(activation(0))
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await ring.get() == activation(0)

    run(work)
