"""Figures as a person reads them."""

from __future__ import annotations

import pytest

from ppsmoke.figures import duration, elapsed, in_milliseconds, part_of_size, percent, rate, seconds, size, span


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (2304, "2.3 kB"), (98_362_432, "98.4 MB"), (3.2e12, "3.2 TB")]
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.00031, "0.31 ms"), (0.0084, "8.4 ms"), (0.31, "310 ms"), (3.94, "3.9 s"), (600, "600 s")],
)
def test_a_time_has_the_digits_that_tell_something(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_a_span_names_its_unit_once() -> None:
    assert span([0.0034, 0.0021]) == "2.1 to 3.4 ms"
    assert span([0.0011, 2.0]) == "1.1 ms to 2.0 s"
    assert span([2.0, 2.01]) == "2.0 s"


@pytest.mark.parametrize(
    ("value", "text"), [(-0.1, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (212.4, "212 s")]
)
def test_a_wait_is_shown_as_its_deadline_is(value: float, text: str) -> None:
    assert elapsed(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.00068, "0.7 ms"), (0.0099, "9.9 ms"), (0.00996, "10 ms"), (0.2121, "212 ms")]
)
def test_round_trips(value: float | None, text: str) -> None:
    assert in_milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (599, "9 min 59 s"),
        (600, "10 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (48 * 3600 - 1, "47 h"),
        (73 * 3600, "3 days"),
    ],
)
def test_what_may_be_long(value: float, text: str) -> None:
    assert duration(value) == text


def test_bytes_that_come_and_shares() -> None:
    assert part_of_size(8_100_000, 52_000_000) == "8 of 52 MB"
    assert (rate(None), rate(23_456_789), rate(900_000)) == ("-", "23.5 MB/s", "0.9 MB/s")
    assert percent(0.0843) == "8 %"
