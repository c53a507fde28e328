"""An offset is found within the bound that is given with it, whatever the two ways take and however clocks drift."""

from __future__ import annotations

import random

import pytest

from ppsmoke.clock_offset import DRIFT, ClockOffset, Exchange, one_way


def exchange(at: float, *, offset: float, there: float, back: float, busy: float = 0.0, drift: float = 0.0) -> Exchange:
    """What both ends would stamp: their clock reads `offset + drift * t` more at our time t."""

    def theirs(ours: float) -> float:
        return ours + offset + drift * ours

    return Exchange(at, theirs(at + there), theirs(at + there + busy), at + there + busy + back)


def test_an_even_way_gives_the_offset_itself() -> None:
    found = exchange(100.0, offset=-7.5, there=0.02, back=0.02, busy=0.5)
    assert found.offset == pytest.approx(-7.5)
    assert found.round_trip == pytest.approx(0.04)


def test_one_clock_is_no_offset() -> None:
    clock = ClockOffset()
    clock.add(exchange(5.0, offset=0.0, there=0.0002, back=0.0001))
    estimate = clock.estimate(5.0)
    assert estimate is not None
    assert abs(estimate.offset) <= estimate.within <= 0.00016
    assert estimate.ours(5.0) == 5.0


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_is_within_the_bound(seed: int) -> None:
    chance = random.Random(seed)
    offset, drift = chance.uniform(-1e6, 1e6), chance.uniform(-DRIFT, DRIFT) / 2
    clock, at = ClockOffset(), 0.0
    for _ in range(100):
        at += chance.uniform(0.05, 5.0)
        slow = chance.choice((0.0, 0.0, 3.0))
        there, back = 0.01 + chance.expovariate(20) + slow, 0.01 + chance.expovariate(20)
        clock.add(exchange(at, offset=offset, there=there, back=back, busy=chance.random(), drift=drift))
        happened = at + chance.uniform(-2.0, 2.0)
        theirs = happened + offset + drift * happened
        estimate = clock.estimate(theirs)
        assert estimate is not None
        assert abs(estimate.ours(theirs) - happened) <= estimate.within + 1e-6


def test_the_least_round_trip_wins_until_its_age_costs_more() -> None:
    clock = ClockOffset()
    clock.add(exchange(0.0, offset=1.0, there=0.001, back=0.001))
    clock.add(exchange(1.0, offset=1.0, there=0.5, back=0.1))
    estimate = clock.estimate(2.0)
    assert estimate is not None
    assert estimate.round_trip == pytest.approx(0.002)
    clock.add(exchange(1000.0, offset=1.05, there=0.01, back=0.01))
    later = clock.estimate(1001.0)
    assert later is not None
    assert later.offset == pytest.approx(1.05)
    early = clock.estimate(1.0)
    assert early is not None
    assert early.offset == pytest.approx(1.0)


@pytest.mark.parametrize(
    "wrong", [Exchange(2.0, 5.0, 5.0, 1.0), Exchange(1.0, 5.0, 4.0, 2.0), Exchange(1.0, 0.0, 9.0, 2.0)]
)
def test_stamps_that_cannot_be_are_not_taken(wrong: Exchange) -> None:
    clock = ClockOffset()
    assert not clock.add(wrong)
    assert clock.estimate(0.0) is None


def test_one_message_places_it_at_its_arrival() -> None:
    assert one_way(500.0, 20.0).ours(499.5) == pytest.approx(19.5)
