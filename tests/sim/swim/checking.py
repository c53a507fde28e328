"""Play many schedules, and say of each that breaks a property how to see it again."""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.swim.properties import violations
from tests.sim.swim.schedule import FAMILIES, play

SHOWN = 6


def check(family: str, seeds: Iterable[int]) -> None:
    """Fails with every broken schedule, what it breaks, and the command that plays it again."""
    broken = [complaint for seed in seeds if (complaint := complaint_about(family, seed))]
    assert not broken, f"{len(broken)} schedules break a property\n\n" + "\n\n".join(broken[:SHOWN])


def complaint_about(family: str, seed: int) -> str:
    """What is wrong with the schedule; empty when nothing is."""
    schedule = FAMILIES[family](str(seed))
    replay = f"to see it again: python -m tests.sim.swim {family} {seed}"
    try:
        found = violations(schedule, play(schedule))
    except Exception as error:
        error.add_note(replay)
        raise
    if not found:
        return ""
    return "\n  ".join([replay, schedule.describe(), *found[:SHOWN]])
