"""Roles and block ranges are pure functions of (index, count)."""

from __future__ import annotations

import pytest

from ppsmoke.errors import PlanInvalid
from ppsmoke.roles import Role, layer_range, role_of


def ranges(stages: int, layers: int) -> list[tuple[int, int]]:
    return [layer_range(index, stages, layers) for index in range(stages)]


@pytest.mark.parametrize("count", [2, 3, 5, 8, 30])
def test_the_ends_are_first_and_last_and_the_rest_middle(count: int) -> None:
    roles = [role_of(index, count) for index in range(count)]
    assert roles == [Role.FIRST, *[Role.MIDDLE] * (count - 2), Role.LAST]


@pytest.mark.parametrize(("index", "count"), [(0, 1), (0, 0), (-1, 3), (3, 3), (7, 2), (0, -2)])
def test_a_pair_that_names_no_stage_is_refused(index: int, count: int) -> None:
    with pytest.raises(PlanInvalid):
        role_of(index, count)


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (30, 2, [15, 15]),
        (30, 3, [10, 10, 10]),
        (30, 4, [8, 8, 7, 7]),
        (30, 5, [6, 6, 6, 6, 6]),
        (30, 7, [5, 5, 4, 4, 4, 4, 4]),
        (30, 8, [4, 4, 4, 4, 4, 4, 3, 3]),
        (24, 5, [5, 5, 5, 5, 4]),
        (24, 8, [3] * 8),
        (28, 8, [4, 4, 4, 4, 3, 3, 3, 3]),
        (16, 3, [6, 5, 5]),
        (80, 8, [10] * 8),
        (81, 8, [11, 10, 10, 10, 10, 10, 10, 10]),
        (36, 16, [3, 3, 3, 3, *[2] * 12]),
        (2, 2, [1, 1]),
        (9, 8, [2, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_first_stages_take_the_extra_blocks(layers: int, stages: int, sizes: list[int]) -> None:
    assert [end - start for start, end in ranges(stages, layers)] == sizes


def test_ranges_are_contiguous_and_cover_every_block_once() -> None:
    for layers in range(2, 65):
        for stages in range(2, layers + 1):
            owned = [block for start, end in ranges(stages, layers) for block in range(start, end)]
            assert owned == list(range(layers))


@pytest.mark.parametrize(
    ("index", "stages", "layers"), [(0, 9, 8), (0, 0, 8), (0, -1, 8), (-1, 2, 8), (2, 2, 8), (0, 2, 0)]
)
def test_a_cut_that_is_none_is_refused(index: int, stages: int, layers: int) -> None:
    with pytest.raises(PlanInvalid):
        layer_range(index, stages, layers)
