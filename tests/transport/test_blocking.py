"""Reads and writes of a stream that a plain thread waits for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.transport.blocking import BlockingReceiver, BlockingSender, CallsCancelled
from tests.transport.kit import PATIENCE_S, eventually, peer, run_clean

MAYBE_READY = 1


@asynccontextmanager
async def stream() -> AsyncIterator[tuple[BlockingSender, BlockingReceiver, Any]]:
    """The writing and the reading end of one stream, and the writer's side of the library's stream."""
    async with peer("a") as a, peer("b") as b:
        a.knows(b)
        arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        b.mesh.on_stream = lambda _peer, incoming: arrived.set_result(incoming)
        out = await a.mesh.open_stream(b.id, max_frame=1024)
        await out.write_frame(b"")
        into = await asyncio.wait_for(arrived, PATIENCE_S)
        assert await into.read_frame() == b""
        yield BlockingSender(out._send), BlockingReceiver(into._recv), out


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(work, *arguments), PATIENCE_S)


def test_bytes_come_as_they_went() -> None:
    async def work() -> None:
        async with stream() as (sender, receiver, _):
            for size in (1, 2404, 2404, 65536, 400_000):
                data = os.urandom(size)
                sender.prepare(7)  # for something else, which never came
                await in_thread(sender.write, data[:1], data[1 : size // 2], data[size // 2 :] if size > 1 else b"")
                assert await in_thread(receiver.read_exact, size) == data
            sender.prepare(99)  # and is given back unused

    run_clean(work())


def test_a_read_waits_for_something_and_ends_with_the_stream() -> None:
    async def work() -> None:
        async with stream() as (sender, receiver, out):
            reading = asyncio.create_task(in_thread(receiver.read, 100))
            await asyncio.wait((reading,), timeout=0.1)
            assert not reading.done()
            await in_thread(sender.write, b"abc")
            assert await reading == b"abc"
            await out.finish()
            assert await in_thread(receiver.read, 100) == b""

    run_clean(work())


def test_the_librarys_errors_come_out_and_the_next_call_is_none_the_worse() -> None:
    async def work() -> None:
        async with stream() as (sender, receiver, out):
            await in_thread(sender.write, b"abc")
            await out.finish()
            with pytest.raises(IROH_ERRORS):
                await in_thread(receiver.read_exact, 10)
            with pytest.raises(IROH_ERRORS):
                await in_thread(sender.write, b"abc")
            assert await in_thread(receiver.read, 10) == b""

    run_clean(work())


@pytest.mark.parametrize("waiting", ["a read", "a write"])
def test_cancel_ends_what_waits_and_all_that_would_follow(waiting: str) -> None:
    async def work() -> None:
        async with stream() as (sender, receiver, _):
            written = 0

            def flood() -> None:
                nonlocal written
                while True:
                    sender.write(bytes(100_000))
                    written += 1

            call = asyncio.create_task(in_thread(receiver.read, 10) if waiting == "a read" else in_thread(flood))
            if waiting == "a write":
                await eventually(lambda: written >= 10)
            await asyncio.wait((call,), timeout=0.2)
            assert not call.done()
            (receiver if waiting == "a read" else sender).cancel()
            with pytest.raises(CallsCancelled, match="told to stop"):
                await asyncio.wait_for(call, 1.0)
            with pytest.raises(CallsCancelled):
                await (in_thread(receiver.read, 10) if waiting == "a read" else in_thread(sender.write, b"x"))

    run_clean(work())


class Pending:
    """A future that stays pending, as the library polls one: a callback that waits gives way to a newer one, and is
    told so at once. The first one is called by another thread before the poll that brought it returns."""

    def __init__(self) -> None:
        self.polls = 0
        self._waits: Callable[[int, int], None] | None = None

    def poll(self, _future: int, told: Callable[[int, int], None], lock: int) -> None:
        self.polls += 1
        if self.polls == 1:
            early = threading.Thread(target=told, args=(lock, MAYBE_READY))
            early.start()
            early.join()
            return
        before, self._waits = self._waits, told
        if before is not None:
            before(lock, MAYBE_READY)


def test_a_call_that_was_woken_early_waits_on_and_can_be_cancelled() -> None:
    async def work() -> None:
        async with stream() as (sender, _, _):
            future = Pending()
            call = asyncio.create_task(in_thread(sender._wait, future.poll, 0, sender._told))
            await eventually(lambda: future.polls >= 2)
            await asyncio.wait((call,), timeout=0.2)
            assert future.polls == 2  # it does not poll round and round
            sender.cancel()
            with pytest.raises(CallsCancelled):
                await asyncio.wait_for(call, PATIENCE_S)

    run_clean(work())


def test_many_reads_and_writes_keep_their_order() -> None:
    async def work() -> None:
        async with stream() as (sender, receiver, _):

            def produce() -> None:
                for number in range(2000):
                    sender.write(number.to_bytes(4, "big"))

            def consume() -> bytes:
                found = b""
                while len(found) < 8000:
                    found += receiver.read(64)
                return found

            _, found = await asyncio.gather(in_thread(produce), in_thread(consume))
            assert found == b"".join(number.to_bytes(4, "big") for number in range(2000))

    run_clean(work())
