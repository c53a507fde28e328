"""Seed and members over real iroh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ppsmoke.errors import DeadlineExceeded, JoinRefused, PeerLeft
from ppsmoke.membership import (
    ENTRY_NAME,
    ORCHESTRATOR_NAME,
    JoinedMembership,
    SeedMembership,
    stage_name,
)
from ppsmoke.membership.registry import Change
from tests.transport.kit import PATIENCE_S, Peer, eventually, id_of, peer, run_clean


class Cluster:
    def __init__(self, seed: Peer, seed_membership: SeedMembership, changes: list[Change]) -> None:
        self.seed = seed
        self.seed_membership = seed_membership
        self.changes = changes
        self.peers: list[Peer] = []
        self.members: list[JoinedMembership] = []


@asynccontextmanager
async def cluster(count: int) -> AsyncIterator[Cluster]:
    changes: list[Change] = []
    async with AsyncExitStack() as stack:
        seed = await stack.enter_async_context(peer("orchestrator"))
        membership = SeedMembership(
            seed.mesh,
            names=frozenset({ORCHESTRATOR_NAME}),
            on_change=lambda old, new: changes.append((old, new)),
            planned={id_of(f"stage {index}"): index for index in range(count)},
        )
        made = Cluster(seed, membership, changes)
        for index in range(count):
            node = await stack.enter_async_context(peer(f"stage {index}"))
            node.knows(seed)
            made.peers.append(node)
            made.members.append(JoinedMembership(node.mesh, seed_id=seed.id, stage_index=index))
        yield made


async def join_all(made: Cluster) -> None:
    await asyncio.gather(*(member.join(PATIENCE_S) for member in made.members))
    await asyncio.gather(*(member.register(stage_name(index), PATIENCE_S) for index, member in enumerate(made.members)))


def test_everybody_learns_of_everybody_and_every_name_from_joining_one_seed() -> None:
    async def work() -> None:
        async with cluster(4) as made:
            await join_all(made)
            await made.seed_membership.wait_alive(4, PATIENCE_S)
            for member in made.members:
                await member.wait_alive(4, PATIENCE_S)  # three others and the orchestrator
                for index in range(4):
                    assert await member.wait_name(stage_name(index), PATIENCE_S) == made.peers[index].id
                assert member.resolve(ORCHESTRATOR_NAME) == made.seed.id

    run_clean(work())


def test_the_last_stage_links_with_the_first_from_the_table_alone() -> None:
    async def work() -> None:
        async with cluster(3) as made:
            await join_all(made)
            last, first = made.peers[2], made.peers[0]
            assert first.id not in last.mesh.linked()
            found = await made.members[2].wait_name(stage_name(0), PATIENCE_S)
            await last.mesh.send(found, "control", {"from": "last"})
            wanted = ("stage 2", "control", {"from": "last"})
            await first.events.until(lambda: wanted in first.events.messages)

    run_clean(work())


def test_oneself_is_never_counted_as_alive() -> None:
    async def work() -> None:
        async with cluster(1) as made:
            with pytest.raises(DeadlineExceeded, match="0 of 1 other members were alive"):
                await made.seed_membership.wait_alive(1, 0.2)
            await made.members[0].join(PATIENCE_S)
            await made.seed_membership.wait_alive(1, PATIENCE_S)
            with pytest.raises(DeadlineExceeded, match="1 of 2 other members were alive"):
                await made.members[0].wait_alive(2, 0.2)
            with pytest.raises(DeadlineExceeded, match="nobody had registered the name pp-entry"):
                await made.members[0].wait_name(ENTRY_NAME, 0.2)

    run_clean(work())


def test_a_refused_name_and_a_refused_join_say_why() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await made.members[1].join(PATIENCE_S)
            with pytest.raises(JoinRefused, match="pp-stage-0 is not for stage 1"):
                await made.members[1].register(stage_name(0), PATIENCE_S)
            impostor = JoinedMembership(made.peers[0].mesh, seed_id=made.seed.id, stage_index=1)
            with pytest.raises(JoinRefused, match="orchestrator refused the join: the plan has this node as stage 0"):
                await impostor.join(PATIENCE_S)

    run_clean(work())


def test_a_node_that_leaves_is_left_everywhere_and_its_names_are_free() -> None:
    async def work() -> None:
        async with cluster(3) as made:
            await join_all(made)
            await made.peers[1].mesh.close("stopped")
            await eventually(lambda: made.members[2].members()[made.peers[1].id].state == "left")
            for view in (made.seed_membership, made.members[0], made.members[2]):
                await eventually(lambda v=view: v.members()[made.peers[1].id].state == "left")
                assert view.members()[made.peers[1].id].reason == "stage 1 left: stopped"
                assert view.resolve(stage_name(1)) is None
            assert made.changes[-1][1].state == "left"

    run_clean(work())


def test_when_the_orchestrator_goes_every_wait_ends_with_that() -> None:
    async def work() -> None:
        async with cluster(1) as made:
            await join_all(made)
            waiting = asyncio.create_task(made.members[0].wait_name(ENTRY_NAME, 60))
            await asyncio.sleep(0)
            await made.seed.mesh.close("run over")
            with pytest.raises(PeerLeft, match="orchestrator left: run over"):
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert made.members[0].members()[made.seed.id].state == "left"

    run_clean(work())


def test_news_from_anyone_but_the_seed_and_nonsense_are_dropped() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            await made.members[0].wait_name(stage_name(1), PATIENCE_S)
            forged = {"op": "table", "version": 10**6, "members": []}
            await made.peers[0].mesh.send(made.peers[1].id, "membership", forged)
            await made.peers[0].mesh.send(made.seed.id, "membership", forged)
            await made.peers[0].mesh.send(made.seed.id, "membership", {"op": "explode"})
            await made.peers[0].mesh.send(made.peers[1].id, "control", {"after": True})
            await made.peers[1].events.until(lambda: any(m[1] == "control" for m in made.peers[1].events.messages))
            assert made.members[1]._view.version < 100
            assert made.members[1].resolve(stage_name(0)) == made.peers[0].id

    run_clean(work())
