from __future__ import annotations

import pytest

from ppsmoke.membership.swim.suspicion import Suspicion, confirmations_needed, size_factor, suspicion_s


@pytest.mark.parametrize(
    ("confirmed", "needed", "seconds"),
    [
        (0, 3, 30.0),
        (1, 3, 16.0),
        (2, 3, 7.81),
        (3, 3, 2.0),
        (4, 3, 2.0),
        (0, 1, 30.0),
        (1, 1, 2.0),
        (0, 0, 30.0),
    ],
)
def test_the_time_shrinks_with_the_logarithm_of_the_confirmations(confirmed: int, needed: int, seconds: float) -> None:
    assert suspicion_s(confirmed, needed, 2.0, 30.0) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(
    ("members", "needed"),
    [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 2), (128, 2)],
)
def test_nobody_waits_for_more_confirmations_than_there_are_others(members: int, needed: int) -> None:
    assert confirmations_needed(2, members) == needed


@pytest.mark.parametrize(("members", "factor"), [(0, 1.0), (1, 1.0), (10, 1.0), (100, 2.0), (1000, 3.0)])
def test_suspicion_lasts_longer_in_larger_clusters(members: int, factor: float) -> None:
    assert size_factor(members) == pytest.approx(factor)


def test_it_ends_sooner_with_each_one_who_confirms() -> None:
    suspicion = Suspicion("a", 10.0, needed=2, least_s=1.0, most_s=3.0)
    ends = [suspicion.ends]
    for accuser in "bc":
        assert suspicion.confirm(accuser)
        ends.append(suspicion.ends)
    assert ends[0] == 13.0
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] == 11.0


def test_the_same_accuser_does_not_confirm_twice() -> None:
    suspicion = Suspicion("a", 0.0, needed=2, least_s=1.0, most_s=3.0)
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert not suspicion.confirm("b")


def test_more_than_needed_is_no_news() -> None:
    suspicion = Suspicion("a", 0.0, needed=1, least_s=1.0, most_s=3.0)
    assert suspicion.confirm("b")
    assert not suspicion.confirm("c")


def test_with_nobody_who_could_confirm_the_longest_time_applies() -> None:
    suspicion = Suspicion("a", 0.0, needed=0, least_s=1.0, most_s=3.0)
    assert not suspicion.confirm("b")
    assert suspicion.ends == 3.0


def test_a_delay_of_ones_own_is_given_to_the_suspect_on_top() -> None:
    suspicion = Suspicion("a", 0.0, needed=1, least_s=1.0, most_s=3.0)
    suspicion.shift(5.0)
    assert suspicion.ends == 8.0


@pytest.mark.parametrize(
    ("heard_at", "ends"),
    [
        (0.0, 13.0),
        (10.0, 13.0),
        (11.5, 13.0),
        (12.5, 13.5),
        (20.0, 21.0),
        (40.0, 22.0),
    ],
)
def test_one_that_is_heard_again_gets_the_least_time_anew_but_not_for_ever(heard_at: float, ends: float) -> None:
    suspicion = Suspicion("a", 10.0, needed=1, least_s=1.0, most_s=3.0)
    assert suspicion.ends_for(heard_at) == ends
