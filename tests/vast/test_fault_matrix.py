"""Every step of renting x everything that can go wrong there: the emulator's own ledger shows nothing alive afterwards.

After a kill, or a second Ctrl-C that left something named, a teardown has the last word. No dollar is billed after the
end of any of the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.vast.fault_cases import DRIVER_FAULTS, STEPS, TWO_AT_ONCE, Outcome, Step, run_case, run_whole
from tests.vast_emulator.fates import FATES, HOPELESS
from tests.vast_emulator.faults import fitting

_AT_ONCE = 5

# After these a run ends although its machines were fine: the key, the account or the request is at fault.
_FATAL = {
    "create": {"no_credit", "bad_request", "bad_key_401", "bad_key_404", "session_expired"},
    "search": set(fitting("search")),  # whether a search is repeated is the client's affair
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_nothing_is_alive_after_a_fault_at(step: Step, tmp_path: Path) -> None:
    def case(fault: str) -> Case:
        return lambda: run_case(step, fault, _made(tmp_path / fault))

    faults = [*fitting(step.call), *DRIVER_FAULTS, *TWO_AT_ONCE.get(step.call, ())]
    for outcome in asyncio.run(_all([case(fault) for fault in faults])):
        assert outcome.reached, f"{outcome.describe()}: the step never came"
        _check_nothing_left(outcome)
        fatal = {*_FATAL.get(step.call, ()), *DRIVER_FAULTS}
        if outcome.fault not in fatal and "+" not in outcome.fault:
            assert outcome.held, f"{outcome.describe()}: one fault that passes must not end a run"


@pytest.mark.parametrize("which", [1, 2])
def test_nothing_is_alive_after_a_host_fails(which: int, tmp_path: Path) -> None:
    def case(fate: str) -> Case:
        running_s = 1.0 if fate == "hangs" else 20.0
        return lambda: run_whole(f"host:{which}={fate}", _made(tmp_path / fate), running_s=running_s)

    outcomes = asyncio.run(_all([case(fate) for fate in FATES]))
    for outcome in outcomes:
        _check_nothing_left(outcome)
        assert outcome.held != (outcome.fault in HOPELESS), (
            f"{outcome.describe()}: replaced, unless every machine would fail alike"
        )


def test_nothing_is_alive_after_chaos(tmp_path: Path) -> None:
    def case(seed: int) -> Case:
        return lambda: run_whole("", _made(tmp_path / str(seed)), chaos=0.12, seed=seed)

    for outcome in asyncio.run(_all([case(seed) for seed in range(12)])):
        _check_nothing_left(outcome)


Case = Callable[[], Coroutine[Any, Any, Outcome]]


async def _all(cases: list[Case]) -> list[Outcome]:
    """A few at a time: they wait more than they compute."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(case: Case) -> Outcome:
        async with slots:
            return await case()

    return await asyncio.gather(*(one(case) for case in cases))


def _check_nothing_left(outcome: Outcome) -> None:
    assert outcome.left == [], outcome.describe()
    assert outcome.unnamed == [], outcome.describe()
    assert outcome.billed_after == pytest.approx(0.0, abs=1e-9), outcome.describe()


def _made(path: Path) -> Path:
    path.mkdir()
    return path
