"""What a phase may take, as the run's deadline and its events have it."""

from __future__ import annotations

import pytest

from ppsmoke.orchestrator.machine import Phase
from ppsmoke.orchestrator.options import Deadlines
from ppsmoke.orchestrator.phase_bounds import phase_bound

DEADLINES = Deadlines(ready=1.0, response=2.0, stop=3.0, kill=4.0)


@pytest.mark.parametrize(
    ("phase", "seconds", "option"),
    [
        (Phase.PROVISIONING, 1.0, "--ready-timeout"),
        (Phase.WAITING_READY, 1.0, "--ready-timeout"),
        (Phase.RUNNING, 2.0, "--response-timeout"),
        (Phase.REDEPLOYING, 7.0, "--stop-timeout"),
        (Phase.TEARING_DOWN, 3.0, "--stop-timeout"),
    ],
)
def test_a_phase_that_waits_for_others_has_a_bound_and_the_option_that_sets_it(
    phase: Phase, seconds: float, option: str
) -> None:
    bound = phase_bound(phase, DEADLINES)
    assert bound is not None
    assert (bound.seconds, bound.option) == (seconds, option)


@pytest.mark.parametrize("phase", [Phase.PLANNING, Phase.IDLE, Phase.DONE])
def test_a_phase_that_has_a_bound_elsewhere_or_waits_for_its_user_has_none_here(phase: Phase) -> None:
    assert phase_bound(phase, DEADLINES) is None
