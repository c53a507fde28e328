"""A peer that has proven the token and then sends nonsense as membership: noted once, and nothing else happens."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from ppsmoke.membership import SwimMembership, stage_name
from ppsmoke.membership.courier import MAX_MESSAGE_BYTES, Courier
from tests.membership.kit import member, seed_member
from tests.transport.kit import PATIENCE_S, Peer, eventually, peer, run_clean
from tests.transport.raw import RawPeer, frame, raw_peer


async def still_serves(seed: Peer, table: SwimMembership) -> None:
    """A proper member joins, gets its name known, and is alive."""
    async with peer("stage 0") as node:
        node.knows(seed)
        async with member(node, 0, 2) as joining:
            await joining.join(PATIENCE_S)
            await joining.register(stage_name(0), PATIENCE_S)
            assert await table.wait_name(stage_name(0), PATIENCE_S) == node.id
            assert table.members()[node.id].state == "alive"


async def send_nonsense(stranger: RawPeer, chance: random.Random) -> None:
    for _ in range(200):
        stranger.connection.send_datagram(chance.randbytes(chance.randrange(0, 1100)))
    stream = await stranger.connection.open_uni()
    for _ in range(200):
        await stream.write_all(frame(chance.randbytes(chance.randrange(0, 2000))))
    await stream.write_all(frame(os.urandom(MAX_MESSAGE_BYTES)))
    for _ in range(3):
        bad = await stranger.connection.open_uni()
        await bad.write_all(b"\xff\xff\xff\xff" + bytes(100))
        await asyncio.wait_for(bad.stopped(), PATIENCE_S)


def test_nonsense_is_noted_once_for_each_way_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with peer("orchestrator") as seed, seed_member(seed, 2) as table, raw_peer(seed) as stranger:
            control = await stranger.greet(seed)
            await seed.events.until(lambda: seed.events.up == ["stranger"])
            await send_nonsense(stranger, random.Random(7))
            await still_serves(seed, table)
            assert "stranger" in seed.events.up
            assert not [reason for name, reason in seed.events.down if name == "stranger"], "its link is its own affair"
            assert stranger.endpoint.node_id not in table.members()
            del control

    run_clean(work())
    notes = [record.getMessage() for record in caplog.records if "membership from stranger" in record.getMessage()]
    assert notes
    assert len(notes) == len(set(notes)) <= 4, notes
    assert not [record for record in caplog.records if record.exc_info]


def test_what_a_member_said_changes_nothing_when_another_plays_it_back() -> None:
    async def work() -> None:
        async with peer("orchestrator") as seed, seed_member(seed, 2) as table, peer("stage 0") as node:
            node.knows(seed)
            recorded: list[bytes] = []
            hear = table._driver._received

            def record(courier: Courier, data: bytes) -> None:
                recorded.append(data)
                hear(courier, data)

            table._driver._received = record  # type: ignore[method-assign]
            async with member(node, 0, 2) as joining, raw_peer(seed) as stranger:
                await joining.join(PATIENCE_S)
                await eventually(lambda: len(recorded) > 3)
                control = await stranger.greet(seed)
                await seed.events.until(lambda: "stranger" in seed.events.up)
                before = len(recorded)
                for data in recorded[:before] * 5:
                    stranger.connection.send_datagram(data)
                await eventually(lambda: len(recorded) >= 3 * before)
                await still_answers(table)
                assert table.members()[node.id].state == "alive"
                assert table.members()[node.id].incarnation == 0
                assert table.resolve(stage_name(0)) is None
                del control

    run_clean(work())


async def still_answers(table: SwimMembership) -> None:
    rows = await table.table()
    assert [row.path for row in rows].count("self") == 1
