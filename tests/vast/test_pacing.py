"""Pacing: every schedule of calls keeps its intervals, whoever asks when."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ppsmoke.vast.answers import Call
from ppsmoke.vast.pacing import INTERVALS_S, Pacer


def test_every_call_has_an_interval_at_least_as_long_as_the_services_threshold() -> None:
    thresholds = {
        Call.SEARCH: 6.0,
        Call.CREATE: 4.5,
        Call.SHOW: 2.0,
        Call.LIST: 1.0,
        Call.DESTROY: 3.0,
        Call.REQUEST_LOGS: 1.0,
        Call.ACCOUNT: 0.0,
    }
    assert set(INTERVALS_S) == set(Call) == set(thresholds)
    assert all(INTERVALS_S[call] >= least for call, least in thresholds.items())


def test_the_first_call_starts_at_once_and_the_next_waits() -> None:
    pacer = Pacer()
    assert [pacer.reserve(Call.DESTROY, 100.0) for _ in range(3)] == [100.0, 103.0, 106.0]
    assert pacer.reserve(Call.LIST, 100.0) == 100.0
    assert pacer.reserve(Call.DESTROY, 200.0) == 200.0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_no_two_calls_of_a_kind_come_closer_than_their_interval(seed: int) -> None:
    draw = random.Random(seed)
    pacer, now = Pacer(scale=0.5), 0.0
    starts: dict[Call, list[float]] = {call: [] for call in Call}
    held: dict[Call, float] = dict.fromkeys(Call, 0.0)
    for _ in range(200):
        now += draw.choice([0.0, 0.1, 1.0, 5.0])
        call = draw.choice(list(Call))
        if draw.random() < 0.1:
            held[call] = max(held[call], now + draw.uniform(0, 20))
            pacer.hold(call, held[call])
        start = pacer.reserve(call, now)
        assert start >= max(now, held[call])
        starts[call].append(start)
    for call, times in starts.items():
        gaps = [after - before for before, after in pairwise(times)]
        assert all(gap >= INTERVALS_S[call] * 0.5 - 1e-9 for gap in gaps)


def test_a_hold_never_lets_a_call_through_earlier() -> None:
    pacer = Pacer()
    pacer.hold(Call.LIST, 50.0)
    pacer.hold(Call.LIST, 40.0)
    assert pacer.reserve(Call.LIST, 10.0) == 50.0


def test_backoff_grows_and_is_bounded() -> None:
    waits = [Pacer().backoff_s(Call.LIST, tries, limited=False, asked_s=None) for tries in range(1, 60)]
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert waits == sorted(waits)
    assert waits[-1] == 30.0


def test_a_limited_create_waits_out_its_penalty() -> None:
    assert Pacer().backoff_s(Call.CREATE, 1, limited=True, asked_s=4.5) == 12.0
    assert Pacer().backoff_s(Call.DESTROY, 1, limited=True, asked_s=None) == 3.0


def test_what_the_service_asks_for_is_the_least() -> None:
    assert Pacer().backoff_s(Call.LIST, 1, limited=True, asked_s=45.0) == 45.0
    assert Pacer(scale=0.01).backoff_s(Call.LIST, 1, limited=True, asked_s=45.0) == pytest.approx(0.45)
