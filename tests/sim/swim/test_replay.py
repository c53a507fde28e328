"""A schedule is its seed: the same seed is the same run, and a broken one says how to see it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.swim import checking
from tests.sim.swim.schedule import FAMILIES, play

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_same_seed_is_the_same_run_message_by_message(family: str) -> None:
    one, other = (play(FAMILIES[family]("5")) for _ in range(2))
    assert one.digest == other.digest
    assert one.sent == other.sent
    assert [host.changes for host in one.hosts] == [host.changes for host in other.hosts]
    assert play(FAMILIES[family]("6")).digest != one.digest


def test_another_process_with_another_hash_seed_plays_the_same_run() -> None:
    digest = play(FAMILIES["short"]("11")).digest
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.sim.swim", "short", "11"],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert f"digest {digest:08x}" in told.stdout.splitlines()
        assert "host 0 starts, life 1" in told.stdout


def test_a_schedule_that_breaks_a_property_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "violations", lambda schedule, network: ["it is broken"])
    with pytest.raises(AssertionError) as failure:
        checking.check("short", range(3, 5))
    said = str(failure.value)
    assert "2 schedules break a property" in said
    assert "python -m tests.sim.swim short 3" in said
    assert "it is broken" in said


def test_a_schedule_that_raises_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(schedule: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(checking, "play", fail)
    with pytest.raises(ZeroDivisionError) as failure:
        checking.check("short", [7])
    assert "python -m tests.sim.swim short 7" in failure.value.__notes__[0]
