"""What a stage says about its steps when it stops."""

from __future__ import annotations

import pytest

from ppsmoke.stage import timing
from ppsmoke.stage.timing import StepParts, StepTimes


def test_nothing_is_said_of_what_never_ran() -> None:
    assert StepTimes().summary() == {}


def test_prefill_is_summed_and_decode_is_told_by_its_medians() -> None:
    times = StepTimes()
    for arrived in (1.0, 1.5):
        times.add(StepParts(0.1, 0.2, 0.1, 0.1), arrived, is_prefill=True)
    for number in range(1, 4):
        parts = StepParts(inward=number * 1e-4, compute=number * 1e-2, outward=number * 1e-5, write=number * 1e-3)
        times.add(parts, 2.0 + 0.02 * number, is_prefill=False)
    summary = times.summary()
    assert summary["prefill"] == pytest.approx(1.0)
    assert summary["decode_p50"] == pytest.approx(2e-2 + 2e-3 + 2e-4 + 2e-5)
    assert summary["decode_p99"] == pytest.approx(3e-2 + 3e-3 + 3e-4 + 3e-5)
    assert summary["decode_inward_p50"] == pytest.approx(2e-4)
    assert summary["decode_compute_p50"] == pytest.approx(2e-2)
    assert summary["decode_outward_p50"] == pytest.approx(2e-5)
    assert summary["decode_write_p50"] == pytest.approx(2e-3)
    assert summary["decode_round_p50"] == pytest.approx(0.02)


def test_a_round_is_from_one_decode_step_to_the_next_of_the_same_request() -> None:
    times = StepTimes()
    parts = StepParts(0.0, 0.01, 0.0, 0.0)
    times.add(parts, 1.0, is_prefill=False)
    times.add(parts, 5.0, is_prefill=True)
    times.add(parts, 9.0, is_prefill=False)
    assert "decode_round_p50" not in times.summary()
    times.add(parts, 9.25, is_prefill=False)
    assert times.summary()["decode_round_p50"] == pytest.approx(0.25)


def test_a_chain_that_is_held_for_long_tells_of_its_newest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST_STEPS", 10)
    times = StepTimes()
    for number in range(100):
        slow = number < 90
        times.add(StepParts(0.0, 1.0 if slow else 0.01, 0.0, 0.0), float(number), is_prefill=False)
    assert times.summary()["decode_p99"] == pytest.approx(0.01)
