"""Long ways carry as much as the prompt will need before it comes."""

from __future__ import annotations

import pytest

from ppsmoke.paths import probe
from ppsmoke.paths import warm_up as paths_warm_up
from ppsmoke.paths.warm_up import MAX_WARM_UP_BYTES, warm_up, warm_up_bytes
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


def test_a_window_has_room_for_more_than_the_prompt_since_it_is_spread_over_a_round_trip() -> None:
    assert [warm_up_bytes(size) for size in (0, 1000, 147_456)] == [0, 8000, 1_179_648]
    assert warm_up_bytes(10 * MAX_WARM_UP_BYTES) == MAX_WARM_UP_BYTES


def test_a_relayed_way_is_not_waited_for_to_become_direct_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(probe, "_settled", never)

    async def work() -> None:
        async with pair() as (a, b):
            await a.mesh.link(b.id)
            monkeypatch.setattr(a.mesh.endpoint, "loopback_only", False)
            at_first = sent(a, b)
            await warm_up(a.mesh, b.id, 0.1, SIZE, 0)
            assert sent(a, b) - at_first > SIZE

    run_clean(work())


def test_a_way_that_is_gone_is_no_trouble_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_warm_up, "_WARM_UP_S", 0.5)

    async def work() -> None:
        async with pair() as (a, b):
            a.mesh.learn_address(b.id, b.mesh.endpoint.ticket())
            await b.mesh.close("gone")
            await warm_up(a.mesh, b.id, 0.1, SIZE, 0)

    run_clean(work())
