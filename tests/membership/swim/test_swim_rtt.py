from __future__ import annotations

import pytest

from ppsmoke.membership.swim.rtt import RoundTrip, clamp


def test_before_the_first_sample_the_guess_counts_and_nothing_is_shown() -> None:
    trip = RoundTrip(0.5)
    assert trip.smooth_s is None
    assert trip.timeout_s() == 1.0


def test_the_first_sample_sets_the_mean_and_half_of_it_as_variation() -> None:
    trip = RoundTrip(0.5)
    trip.sample(0.1)
    assert trip.smooth_s == 0.1
    assert trip.timeout_s() == pytest.approx(0.1 + 4 * 0.05)


def test_later_samples_move_the_mean_by_an_eighth_and_the_variation_by_a_quarter() -> None:
    trip = RoundTrip(0.5)
    trip.sample(0.1)
    trip.sample(0.2)
    assert trip.smooth_s == pytest.approx(0.1 + 0.1 / 8)
    assert trip.timeout_s() == pytest.approx(0.1125 + 4 * (0.05 + (0.1 - 0.05) / 4))


def test_a_steady_path_comes_to_a_timeout_near_its_round_trip() -> None:
    trip = RoundTrip(0.5)
    for _ in range(100):
        trip.sample(0.2)
    assert trip.timeout_s() == pytest.approx(0.2, rel=0.01)


def test_each_loss_doubles_the_timeout_up_to_sixteen_fold_and_a_sample_ends_that() -> None:
    trip = RoundTrip(0.5)
    trip.sample(0.1)
    once = trip.timeout_s()
    trip.lost()
    assert trip.timeout_s() == pytest.approx(2 * once)
    for _ in range(10):
        trip.lost()
    assert trip.timeout_s() == pytest.approx(16 * once)
    trip.sample(0.1)
    assert trip.timeout_s() <= once


def test_one_long_sample_is_forgotten_after_some_ordinary_ones() -> None:
    trip = RoundTrip(0.02)
    trip.sample(1.0)
    for _ in range(40):
        trip.sample(0.001)
    assert trip.timeout_s() < 0.15


@pytest.mark.parametrize("nonsense", [-0.1, 61.0, float("nan"), float("inf")])
def test_what_cannot_be_a_round_trip_is_ignored(nonsense: float) -> None:
    trip = RoundTrip(0.5)
    trip.sample(nonsense)
    assert trip.smooth_s is None


@pytest.mark.parametrize(("value", "held"), [(0.1, 0.5), (0.7, 0.7), (3.0, 2.0)])
def test_a_value_is_held_between_floor_and_ceiling(value: float, held: float) -> None:
    assert clamp(value, (0.5, 2.0)) == held
