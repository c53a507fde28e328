"""Members over real iroh, in one process: joining, names, leaving, and what reaches the rest of the program."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from ppsmoke.errors import DeadlineExceeded, JoinRefused, PeerLeft, PeerLost
from ppsmoke.membership import (
    ENTRY_NAME,
    EXIT_NAME,
    ORCHESTRATOR_NAME,
    local_config,
    stage_name,
)
from tests.membership.kit import Cluster, cluster, member, seed_member
from tests.transport.kit import PATIENCE_S, eventually, id_of, peer, run_clean


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
                assert await member.wait_name(ORCHESTRATOR_NAME, PATIENCE_S) == made.seed.id

    run_clean(work())


def test_any_pair_links_from_the_table_alone() -> None:
    async def work() -> None:
        async with cluster(3) as made:
            await join_all(made)
            last, first = made.peers[2], made.peers[0]
            found = await made.members[2].wait_name(stage_name(0), PATIENCE_S)
            await last.mesh.send(found, "control", {"from": "last"})
            wanted = ("stage 2", "control", {"from": "last"})
            await first.events.until(lambda: wanted in first.events.messages)

    run_clean(work())


def test_members_link_by_themselves_to_probe_each_other() -> None:
    async def work() -> None:
        async with cluster(3) as made:
            await join_all(made)
            for own in (made.seed, *made.peers):
                await own.events.until(lambda o=own: len(o.mesh.linked()) == 3)
            for own in (made.seed, *made.peers):
                assert sorted(own.events.up) == sorted(set(own.events.up)), "one link for each pair"

    run_clean(work())


def test_oneself_is_never_counted_as_alive() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            with pytest.raises(DeadlineExceeded, match="0 of 1 other members were alive"):
                await made.seed_membership.wait_alive(1, 0.2)
            await made.members[0].join(PATIENCE_S)
            await made.seed_membership.wait_alive(1, PATIENCE_S)
            with pytest.raises(DeadlineExceeded, match="1 of 2 other members were alive"):
                await made.members[0].wait_alive(2, 0.2)
            with pytest.raises(DeadlineExceeded, match="nobody had registered the name pp-entry"):
                await made.members[0].wait_name(ENTRY_NAME, 0.2)

    run_clean(work())


def test_a_refused_name_says_why() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await made.members[1].join(PATIENCE_S)
            wrong = {stage_name(0): "pp-stage-0 is not for stage 1", ENTRY_NAME: "pp-entry is for stage 0, not stage 1"}
            for name, why in wrong.items():
                with pytest.raises(JoinRefused, match=f"the name {name} was refused: .*{why}"):
                    await made.members[1].register(name, PATIENCE_S)

    run_clean(work())


def test_a_node_that_is_not_what_the_plan_says_is_refused() -> None:
    async def work() -> None:
        planned = {id_of("stage 0"): 1}
        async with peer("orchestrator") as seed, seed_member(seed, 2, planned) as table, peer("stage 0") as node:
            node.knows(seed)
            async with member(node, 0, 2) as impostor:
                says = "orchestrator refused the join: the plan has this node as stage 1, not 0"
                with pytest.raises(JoinRefused, match=says):
                    await impostor.join(PATIENCE_S)
            assert list(table.members()) == [seed.id]

    run_clean(work())


@pytest.mark.parametrize(
    ("dialler", "says"),
    [
        ({"join_token": b"another"}, "the join token is wrong"),
        ({"tool_version": "9.9.9"}, "it runs version 0.1.0, not 9.9.9"),
        ({"run_id": "cd" * 16}, "it belongs to another run"),
    ],
)
def test_a_stranger_is_refused_with_the_reason(dialler: dict[str, object], says: str) -> None:
    async def work() -> None:
        async with peer("orchestrator") as seed, seed_member(seed, 2) as table, peer("stage 0", **dialler) as stranger:
            stranger.knows(seed)
            async with member(stranger, 0, 2) as refused:
                with pytest.raises(JoinRefused, match=f"orchestrator refused the link: {says}"):
                    await refused.join(PATIENCE_S)
            assert list(table.members()) == [seed.id]

    run_clean(work())


def test_a_seed_that_does_not_answer_is_named() -> None:
    async def work() -> None:
        async with peer("orchestrator") as seed, peer("stage 0") as node:
            node.knows(seed)  # a mesh without a membership
            async with member(node, 0, 2) as alone:
                with pytest.raises(DeadlineExceeded, match=r"orchestrator did not answer the join within 0\.5 s"):
                    await alone.join(0.5)

    run_clean(work())


def test_a_node_that_leaves_is_left_everywhere_and_its_names_are_free() -> None:
    async def work() -> None:
        async with cluster(3) as made:
            await join_all(made)
            for view in (made.seed_membership, *made.members):
                await view.wait_name(stage_name(1), PATIENCE_S)
            await made.members[1].close()
            await made.peers[1].mesh.close("stopped")
            for view in (made.seed_membership, made.members[0], made.members[2]):
                await eventually(lambda v=view: v.members()[made.peers[1].id].state == "left")
                await eventually(lambda v=view: v.resolve(stage_name(1)) is None)
                assert not view.members()[made.peers[1].id].names
            assert any(after.state == "left" and after.stage_index == 1 for _, after in made.changes)
            assert not any(after.state == "dead" for _, after in made.changes)

    run_clean(work())


def test_a_goodbye_on_the_link_alone_is_a_leave_with_its_reason() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            await made.seed_membership.wait_alive(2, PATIENCE_S)
            await made.peers[1].mesh.close("out of memory")
            await eventually(lambda: made.seed_membership.members()[made.peers[1].id].state == "left")
            assert made.seed_membership.members()[made.peers[1].id].reason == "stage 1 left: out of memory"

    run_clean(work())


def test_when_the_orchestrator_goes_every_wait_ends_with_that() -> None:
    async def work() -> None:
        async with cluster(1 + 1) as made:
            await join_all(made)
            waiting = asyncio.create_task(made.members[0].wait_name(ENTRY_NAME, 60))
            await asyncio.sleep(0)
            await made.seed_membership.close()
            await made.seed.mesh.close("run over")
            with pytest.raises(PeerLeft):
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert made.members[0].members()[made.seed.id].state == "left"

    run_clean(work())


def test_a_member_that_vanished_is_dead_its_link_is_closed_and_waits_end() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            for membership in made.members:
                await membership.wait_alive(2, PATIENCE_S)
            for own in made.peers:
                await own.events.until(lambda o=own: len(o.mesh.linked()) == 2)
            waiting = asyncio.create_task(made.members[0].wait_name(EXIT_NAME, 60))
            # As a hung process would: its links stay, and nobody answers on them.
            await made.seed_membership._thread.stop()
            with pytest.raises(PeerLost):
                await asyncio.wait_for(waiting, PATIENCE_S)
            for own, view in zip(made.peers, made.members, strict=True):
                await eventually(lambda v=view: v.members()[made.seed.id].state == "dead")
                await eventually(lambda o=own: made.seed.id not in o.mesh.linked())
                assert any("the link to orchestrator is lost" in reason.what for _, reason in own.events.down)

    run_clean(work())


def test_whom_one_hears_oneself_is_known_apart_from_who_counts_as_alive() -> None:
    async def work() -> None:
        async with cluster(2, config=local_config(600.0)) as made:  # nobody is declared dead in this test
            await join_all(made)
            node, seed = made.members[0], made.seed.id
            await eventually(lambda: node.heard_within(seed, PATIENCE_S))
            assert not node.heard_within(id_of("a stranger"), PATIENCE_S)
            await made.seed_membership._thread.stop()
            await eventually(lambda: not node.heard_within(seed, 0.3))
            assert node.members()[seed].state == "alive"

    run_clean(work())


def test_a_link_that_only_closed_is_no_death_and_is_dialled_anew() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            for own in (made.seed, *made.peers):
                await own.events.until(lambda o=own: len(o.mesh.linked()) == 2)
            made.seed.mesh.give_up(made.peers[0].id, "closed by a test")
            await made.seed.events.until(lambda: made.seed.events.up.count("stage 0") == 2)
            await made.peers[0].events.until(lambda: made.peers[0].events.up.count("orchestrator") == 2)
            for view in (made.seed_membership, *made.members):
                await eventually(lambda v=view: {m.state for m in v.members().values()} == {"alive"})
            assert not [after for _, after in made.changes if after.state in ("dead", "left")]

    run_clean(work())


def test_the_table_shows_states_paths_round_trips_and_names() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            for own in (made.seed, *made.peers):
                await own.events.until(lambda o=own: len(o.mesh.linked()) == 2)
            for index in range(2):
                await made.seed_membership.wait_name(stage_name(index), PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                while any(row.rtt_s is None and row.path != "self" for row in await made.seed_membership.table()):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            rows = {row.stage_index: row for row in await made.seed_membership.table()}
            assert rows[None].path == "self"
            assert rows[None].names == {ORCHESTRATOR_NAME}
            for index in range(2):
                assert rows[index].state == "alive"
                assert rows[index].path == "direct"
                assert rows[index].names == {stage_name(index)}
                rtt = rows[index].rtt_s
                assert rtt is not None
                assert 0 < rtt < 5

    run_clean(work())


def test_closing_ends_the_thread_and_is_possible_at_every_moment() -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            seed = await stack.enter_async_context(peer("orchestrator"))
            node = await stack.enter_async_context(peer("stage 0"))
            node.knows(seed)
            async with seed_member(seed, 2) as own:
                assert "membership" in [thread.name for thread in threading.enumerate()]
                async with member(node, 0, 2) as other:
                    joining = asyncio.create_task(other.join(PATIENCE_S))
                    await asyncio.sleep(0)
                await asyncio.gather(joining, return_exceptions=True)
                await own.close()
                await own.close()
            assert "membership" not in [thread.name for thread in threading.enumerate()]
            assert [row.state for row in await own.table()][:1] == ["left"]

    run_clean(work())


def test_a_link_on_which_nothing_comes_back_is_dialled_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_all(made)
            for own in made.peers:
                await own.events.until(lambda o=own: len(o.mesh.linked()) == 2)
            one, other = made.members
            # What arrives from the other on this link is lost; the orchestrator still reaches both.
            courier = await one._thread.ask(lambda: one._driver._couriers[made.peers[1].id], PATIENCE_S)
            one._thread.post(courier.stop)
            other_courier = await other._thread.ask(lambda: other._driver._couriers[made.peers[0].id], PATIENCE_S)
            other._thread.post(other_courier.stop)
            await made.peers[0].events.until(lambda: made.peers[0].events.up.count("stage 1") == 2)
            await eventually(lambda: made.peers[1].id in made.peers[0].mesh.linked())
            assert one.members()[made.peers[1].id].state == "alive"

    run_clean(work())
    assert " is dialled anew: nothing comes back on it, although others reach stage" in caplog.text


def test_a_more_patient_silence_slows_the_judging_and_not_the_spreading() -> None:
    quick, slow = local_config(1.0), local_config(600.0)
    assert slow.probe_interval_s == pytest.approx(600 * quick.probe_interval_s)
    assert slow.suspicion_s[0] == pytest.approx(600 * quick.suspicion_s[0])
    assert slow.gossip_interval_s == quick.gossip_interval_s
    assert replace(slow) == slow
