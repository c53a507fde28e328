"""Membership's messages over real connections, each end in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ppsmoke.membership.courier import MAX_MESSAGE_BYTES, MAX_WAITING, Courier
from ppsmoke.membership.loop_thread import LoopThread
from ppsmoke.transport.closing import CloseCode
from tests.transport.kit import PATIENCE_S, Peer, eventually, name_of, peer, run_clean
from tests.transport.raw import frame


class End:
    """One side of a link, with what it got."""

    def __init__(self, own: Peer, other: Peer) -> None:
        self.peer = own
        self.got: list[bytes] = []
        self.at: list[float] = []
        self.complaints: list[tuple[str, str]] = []
        self.ends: list[bool] = []
        self.thread = LoopThread(f"membership of {name_of(own.id)}")
        self.thread.start()
        self.connection = own.mesh.connection_of(other.id)
        self.courier = Courier(
            other.id,
            self.connection,
            received=self._received,
            complained=lambda _courier, reason, text: self.complaints.append((reason, text)),
            ended=lambda _courier, left: self.ends.append(left),
        )
        self.thread.post(self.courier.start, self.thread.spawn, name_of(other.id))

    def _received(self, _courier: Courier, data: bytes) -> None:
        self.at.append(time.monotonic())
        self.got.append(data)

    def send(self, data: bytes, *, reliable: bool) -> None:
        self.thread.post(lambda: self.courier.send(data, reliable=reliable))


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[End, End]]:
    async with peer("a") as a, peer("b") as b:
        a.knows(b)
        await a.mesh.link(b.id)
        await b.events.until(lambda: b.events.up == ["a"])
        ends = End(a, b), End(b, a)
        try:
            yield ends
        finally:
            for end in ends:
                await end.thread.stop()


def test_messages_go_both_ways_as_datagrams_and_on_the_stream() -> None:
    async def work() -> None:
        async with pair() as (a, b):
            for end, other in ((a, b), (b, a)):
                end.send(b"may be lost", reliable=False)
                await eventually(lambda o=other: b"may be lost" in o.got)
                for number in range(30):
                    end.send(b"%d" % number, reliable=True)
                await eventually(lambda o=other: len(o.got) == 31)
                assert other.got[1:] == [b"%d" % number for number in range(30)], "the stream keeps the order"

    run_clean(work())


def test_what_does_not_fit_a_datagram_goes_on_the_stream() -> None:
    async def work() -> None:
        async with pair() as (a, b):
            big = os.urandom(MAX_MESSAGE_BYTES)
            a.send(big, reliable=False)
            await eventually(lambda: b.got == [big])

    run_clean(work())


def test_messages_flow_while_both_main_loops_compute() -> None:
    async def work() -> None:
        async with pair() as (a, b):
            a.send(b"first", reliable=True)
            await eventually(lambda: bool(b.got))

            async def talk() -> None:
                while True:
                    a.courier.send(b"ping", reliable=len(b.got) % 2 == 0)
                    await asyncio.sleep(0.02)

            a.thread.post(lambda: a.thread.spawn(talk(), "talk"))
            began = time.monotonic()
            while time.monotonic() < began + 1.5:
                pass
            assert sum(began < at < began + 1.5 for at in b.at) > 5

    run_clean(work())


def test_a_stream_of_nonsense_is_stopped_and_another_one_serves() -> None:
    async def work() -> None:
        async with pair() as (a, b):
            nonsense = await a.connection.open_uni()
            await nonsense.write_all(b"\xff" * 8)
            await eventually(lambda: bool(b.complaints))
            ((reason, text),) = b.complaints
            assert reason == "stream"
            assert text == f"a frame of 4294967295 bytes was announced where at most {MAX_MESSAGE_BYTES} are allowed"
            assert await asyncio.wait_for(nonsense.stopped(), PATIENCE_S) is not None
            a.send(b"in order", reliable=True)
            await eventually(lambda: b.got == [b"in order"])

    run_clean(work())


def test_a_stream_that_the_peer_stops_is_opened_anew() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await a.mesh.link(b.id)
            await b.events.until(lambda: b.events.up == ["a"])
            end = End(a, b)
            connection = b.mesh.connection_of(a.id)
            end.send(b"one", reliable=True)
            stream = await asyncio.wait_for(connection.accept_uni(), PATIENCE_S)
            assert await stream.read(100) == frame(b"one")
            await stream.stop(1)
            opened = asyncio.create_task(connection.accept_uni())
            while not opened.done():
                end.send(b"two", reliable=True)
                await asyncio.wait((opened,), timeout=0.05)
            assert (await opened.result().read(100)).startswith(frame(b"two"))
            await end.thread.stop()

    run_clean(work())


def test_a_peer_that_does_not_read_costs_bounded_memory() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await a.mesh.link(b.id)
            end = End(a, b)
            for _ in range(200):
                end.send(os.urandom(MAX_MESSAGE_BYTES), reliable=True)
            kept = await end.thread.ask(lambda: len(end.courier._waiting), PATIENCE_S)
            assert kept <= MAX_WAITING
            await end.thread.stop()

    run_clean(work())


@pytest.mark.parametrize(("code", "goodbye"), [(CloseCode.LEFT, True), (CloseCode.SILENT, False)])
def test_a_close_by_the_peer_is_told_and_whether_it_was_a_goodbye(code: CloseCode, goodbye: bool) -> None:
    async def work() -> None:
        async with pair() as (a, b):
            # The main loop would see it too, and close its own side before the thread has looked.
            a.connection.close(int(code), b"a reason")
            began = time.monotonic()
            while not b.ends and time.monotonic() < began + PATIENCE_S:
                pass
            assert b.ends == [goodbye]
            a.send(b"into the void", reliable=False)
            a.send(b"into the void", reliable=True)
            await b.peer.events.until(lambda: bool(b.peer.events.down))
            assert b.ends == [goodbye]

    run_clean(work())


def test_the_path_is_known() -> None:
    async def work() -> None:
        async with pair() as (a, _):
            path = await a.thread.ask(a.courier.path, PATIENCE_S)
            assert path is not None
            assert not path.relay
            assert path.address

    run_clean(work())
