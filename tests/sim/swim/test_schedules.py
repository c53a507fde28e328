"""Thousands of one-minute schedules and some long ones with many members: whatever goes wrong, in the end all agree."""

from __future__ import annotations

import pytest

from tests.sim.swim.checking import check


@pytest.mark.parametrize("block", range(12))
def test_after_any_faults_all_views_agree(block: int) -> None:
    check("short", range(100 * block, 100 * (block + 1)))


@pytest.mark.parametrize("block", range(8))
def test_what_happens_to_one_process_is_no_other_members_death(block: int) -> None:
    check("process", range(100 * block, 100 * (block + 1)))


@pytest.mark.parametrize("block", range(4))
def test_long_runs_of_many_members_end_in_agreement(block: int) -> None:
    check("long", range(5 * block, 5 * (block + 1)))
