"""Links are looked at while a run lasts, and one that goes another way is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ppsmoke.membership.courier import Courier, Path
from tests.membership.kit import SEED, cluster
from tests.transport.kit import PATIENCE_S, eventually, id_of, run_clean


def test_a_link_that_goes_over_a_relay_now_is_told_by_both_ends_and_again_when_it_is_direct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, told, relayed = id_of("stage 0"), [], []
    really = Courier.path

    def path(courier: Courier) -> Path | None:
        seen = really(courier)
        return None if seen is None else replace(seen, relay=courier.peer in relayed)

    monkeypatch.setattr(Courier, "path", path)

    async def work() -> None:
        async with cluster(2, on_path=lambda *change: told.append(change)) as made:
            await asyncio.gather(*(member.join(PATIENCE_S) for member in made.members))
            await eventually(lambda: all(made.seed.mesh.linked() >= {peer.id} for peer in made.peers))
            relayed.extend((stage, SEED))
            await eventually(lambda: {(stage, "direct", "relay"), (SEED, "direct", "relay")} <= set(told))
            relayed.clear()
            await eventually(lambda: {(stage, "relay", "direct"), (SEED, "relay", "direct")} <= set(told))
            assert {node for node, _, _ in told} == {stage, SEED}

    run_clean(work())
