"""The driver alone: a machine that does as it is told, connections that note what they are given."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ppsmoke.membership import driver as driver_module
from ppsmoke.membership.driver import MAX_DETOURS, MAX_KEPT, SwimDriver
from ppsmoke.membership.loop_thread import LoopThread
from ppsmoke.membership.swim import Action, Detour, Send
from tests.transport.kit import PATIENCE_S, eventually, run_clean

PEER = "a" * 64


class Machine:
    def __init__(self) -> None:
        self.due = math.inf
        self.ticks = 0
        self.answers: list[Action] = []
        self.heard: list[tuple[str, bool]] = []

    def deadline(self) -> float:
        return self.due

    def tick(self, now: float) -> list[Action]:
        self.ticks += 1
        self.due = now + 0.01
        if self.ticks == 1:
            raise RuntimeError("machine bug")
        return []

    def link_up(self, _peer: str, _now: float) -> list[Action]:
        return []

    def link_down(self, peer: str, _now: float, *, left: bool) -> list[Action]:
        self.heard.append((peer, left))
        return []


class Connection:
    """Takes datagrams and gives nothing."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_datagram(self, data: bytes) -> None:
        self.sent.append(data)

    def paths(self) -> list[Any]:
        return []

    async def read_datagram(self) -> bytes:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def accept_uni(self) -> Any:
        await asyncio.Event().wait()


class Told:
    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.broken: list[str] = []

    def news(self, action: Action) -> None: ...

    def link_wanted(self, node_id: str) -> None:
        self.wanted.append(node_id)

    def path_broken(self, node_id: str) -> None:
        self.broken.append(node_id)

    def name_of(self, node_id: str) -> str:
        return node_id[:4]

    def path_changed(self, node_id: str, before: str, after: str) -> None: ...

    def seen_at(self, node_id: str, address: str) -> None: ...

    def address(self) -> bytes:
        return b""


class Rig:
    def __init__(self) -> None:
        self.machine = Machine()
        self.told = Told()
        self.thread = LoopThread("membership")
        self.driver = SwimDriver(lambda _now: self.machine, self.told, self.thread, own_id="0" * 64)  # type: ignore[arg-type, return-value]

    async def perform(self, *actions: Action) -> None:
        await self.thread.ask(lambda: self.driver.event(lambda _machine, _now: list(actions)), PATIENCE_S)

    async def attach(self, connection: Connection) -> None:
        await self.thread.ask(lambda: self.driver.attach(PEER, connection), PATIENCE_S)


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    made.thread.start()
    try:
        await made.thread.ask(made.driver.start, PATIENCE_S)
        yield made
    finally:
        await made.thread.stop()


def test_a_tick_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with rig() as made:
            made.machine.due = 0.0
            await made.perform()
            await eventually(lambda: made.machine.ticks > 3)

    run_clean(work())
    assert "machine bug" in caplog.text


def test_what_is_sent_before_there_is_a_link_asks_for_one_and_goes_out_when_it_is_up() -> None:
    async def work() -> None:
        async with rig() as made:
            for number in range(MAX_KEPT + 3):
                await made.perform(Send(PEER, b"%d" % number, reliable=False))
            assert set(made.told.wanted) == {PEER}
            connection = Connection()
            await made.attach(connection)
            assert connection.sent == [b"%d" % number for number in range(3, MAX_KEPT + 3)], "the newest"
            await made.perform(Send(PEER, b"later", reliable=False))
            assert connection.sent[-1] == b"later"

    run_clean(work())


def test_what_waited_too_long_for_a_link_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "KEPT_S", -1.0)

    async def work() -> None:
        async with rig() as made:
            await made.perform(Send(PEER, b"old", reliable=False))
            connection = Connection()
            await made.attach(connection)
            assert connection.sent == []

    run_clean(work())


def test_a_new_connection_takes_the_place_of_the_old_one() -> None:
    async def work() -> None:
        async with rig() as made:
            old, new = Connection(), Connection()
            await made.attach(old)
            courier = made.driver._couriers[PEER]
            await made.attach(new)
            await made.thread.ask(lambda: made.driver._connection_closed(courier, False), PATIENCE_S)
            await made.perform(Send(PEER, b"hello", reliable=False))
            assert (old.sent, new.sent) == ([], [b"hello"])
            assert made.machine.heard == [], "the end of the old one is no news"
            await made.thread.ask(lambda: made.driver.detach(PEER, left=True), PATIENCE_S)
            assert made.machine.heard == [(PEER, True)]

    run_clean(work())


def test_some_detours_in_a_row_mean_a_broken_path() -> None:
    async def work() -> None:
        async with rig() as made:
            for in_a_row in range(1, MAX_DETOURS + 1):
                assert made.told.broken == []
                await made.perform(Detour(PEER, in_a_row))
            assert made.told.broken == [PEER]

    run_clean(work())


def test_a_held_driver_judges_nobody_and_makes_up_for_it_afterwards() -> None:
    async def work() -> None:
        async with rig() as made:
            made.machine.ticks = 1
            await made.perform()
            await made.thread.ask(made.driver.hold, PATIENCE_S)
            await made.thread.ask(made.driver.hold, PATIENCE_S)
            made.machine.due = 0.0
            await made.thread.ask(lambda: made.driver.detach(PEER, left=False), PATIENCE_S)
            connection = Connection()
            await made.attach(connection)
            await made.perform(Send(PEER, b"x", reliable=False))
            assert (made.machine.ticks, made.machine.heard, connection.sent) == (1, [], [])
            await made.thread.ask(made.driver.go_on, PATIENCE_S)
            await made.thread.ask(made.driver.go_on, PATIENCE_S)
            assert made.machine.heard == [(PEER, False)]
            assert connection.sent == [b"x"]
            await eventually(lambda: made.machine.ticks > 3)

    run_clean(work())
