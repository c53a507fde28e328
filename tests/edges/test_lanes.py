"""Objects cut into records for several lanes, and made whole again."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ppsmoke.edges.lanes import LANES, Joiner, lanes_for, stripes
from ppsmoke.objects import HEADER, encode_header
from tests.edges.kit import activation


@pytest.mark.parametrize("size", [HEADER.size + 1, 100, 255, 256, 303, 304, 305, 1000, 100_000])
def test_an_object_is_made_whole_from_its_stripes(size: int) -> None:
    obj = replace(activation(0, rows=8), payload=os.urandom(8 * 256))
    head = encode_header(obj)
    pieces = stripes(head, obj.payload, size)
    assert all(len(first) + len(rest) <= size for first, rest in pieces)
    joiner = Joiner(10_000)
    for _ in range(2):
        whole = [joiner.add(first + rest) for first, rest in pieces]
        assert whole == [None] * (len(pieces) - 1) + [head + obj.payload]


def test_what_is_no_object_passes_as_it_is() -> None:
    joiner = Joiner(1000)
    for frame in (b"{}", b"", b"P", b"x" * 100, b"PP" + bytes(10)):
        assert joiner.add(frame) == frame


def test_an_object_over_the_limit_is_not_waited_for() -> None:
    obj = activation(0, rows=8)
    (first, _), *_ = stripes(encode_header(obj), obj.payload, HEADER.size)
    assert Joiner(8 * 256).add(first) == first
    assert Joiner(HEADER.size + 8 * 256).add(first) is None


@pytest.mark.parametrize("extra", [b"", b"x" * 4000])
def test_stripes_that_do_not_add_up_end_the_object_all_the_same(extra: bytes) -> None:
    """Its reader then finds that the sizes disagree."""
    obj = activation(0, rows=8)
    head = encode_header(obj)
    joiner = Joiner(10_000)
    assert joiner.add(head + obj.payload[:100]) is None
    assert joiner.add(extra) == head + obj.payload[:100] + extra


def test_only_a_long_way_is_worth_lanes() -> None:
    assert [lanes_for(round_trip) for round_trip in (0.0, 0.001, 0.019, 0.02, 0.2)] == [1, 1, 1, LANES, LANES]
