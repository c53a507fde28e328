"""Thousands of one-minute schedules and some long ones with many members: whatever goes wrong, in the end all agree."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.swim.checking import check
from tests.sim.swim.schedule import FAMILIES, play


@pytest.mark.parametrize("block", range(12))
def test_after_any_faults_all_views_agree(block: int) -> None:
    check("short", range(100 * block, 100 * (block + 1)))


@pytest.mark.parametrize("block", range(8))
def test_what_happens_to_one_process_is_no_other_members_death(block: int) -> None:
    check("process", range(100 * block, 100 * (block + 1)))


@pytest.mark.parametrize("block", range(4))
def test_long_runs_of_many_members_end_in_agreement(block: int) -> None:
    check("long", range(3 * block, 3 * (block + 1)))


def test_two_who_lack_each_others_new_address_learn_it_from_a_third() -> None:
    """Nobody else is missing anything; they cannot dial each other to ask."""
    check("long", [45])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "first", "last"), [("short", 1200, 5000), ("process", 800, 2500), ("long", 12, 100)]
)
def test_many_more_schedules_end_in_agreement(family: str, first: int, last: int) -> None:
    check(family, range(first, last))


def test_the_schedules_do_harm() -> None:
    """Or the others would show nothing: deaths, returns and goodbyes are noticed, doubts are contradicted."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        for host in play(FAMILIES["short"](str(seed))).hosts:
            seen.update(f"{change.before} to {change.after}" for change in host.changes)
    assert seen["suspect to dead"] > 50
    assert seen["dead to alive"] > 50
    assert seen["suspect to alive"] > 50
    assert seen["alive to left"] > 5
