"""Long ways carry as much as the prompt will need before it comes."""

from __future__ import annotations

import pytest

from ppsmoke.paths import warm_up as paths_warm_up
from ppsmoke.paths.warm_up import warm_up
from tests.paths.test_probe import pair
from tests.transport.kit import Peer, run_clean

SIZE = 300_000


def sent(a: Peer, b: Peer) -> int:
    return sum(path.stats.udp_tx_bytes for path in a.mesh.connection_of(b.id).paths())


@pytest.mark.parametrize(
    ("round_trip_s", "before", "carried"), [(0.1, 0, True), (0.1, SIZE, False), (0.005, 0, False), (0.02, 1000, True)]
)
def test_only_a_long_way_that_has_not_carried_it_is_warmed_up(round_trip_s: float, before: int, carried: bool) -> None:
    async def work() -> None:
        async with pair() as (a, b):
            await a.mesh.link(b.id)
            at_first = sent(a, b)
            await warm_up(a.mesh, b.id, round_trip_s, SIZE, before)
            assert (sent(a, b) - at_first > SIZE) == carried

    run_clean(work())


def test_a_way_that_is_gone_is_no_trouble_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_warm_up, "_WARM_UP_S", 0.5)

    async def work() -> None:
        async with pair() as (a, b):
            a.mesh.learn_address(b.id, b.mesh.endpoint.ticket())
            await b.mesh.close("gone")
            await warm_up(a.mesh, b.id, 0.1, SIZE, 0)

    run_clean(work())
