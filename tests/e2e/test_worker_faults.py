"""Workers that fail, exit, are killed or hang, a node that is stopped: the stage, the phase and its last words."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.kit import NOTICED_S, Box, Done
from tests.e2e.phases import MIDDLE, start_in

PREFILL, DECODE = 0, 3


def run_with(box: Box, fault: str, *more: str) -> Done:
    model = f"stub:layers=8,at_stage={MIDDLE},{fault}"
    return box.run("--seed", "-n", "3", "--model", model, "--max-tokens", "12", "--json", *more)


def assert_blamed(done: Done, code: str, phase: str, *parts: str) -> None:
    """The middle stage's fault: in one sentence, in the object, with the last lines of its log."""
    done.failed(1, f"stage {MIDDLE}", *parts)
    assert "Traceback" not in done.err
    error = done.json["error"]
    assert error["code"] == code
    assert error["stage"] == MIDDLE
    assert phase in error["phase"]
    # The phase is said once: in the sentence or behind it.
    assert phase in done.errors[0]


def assert_last_words(done: Done, words: str) -> None:
    assert f"last log lines of stage {MIDDLE}:" in done.err
    quoted = [line for line in done.err.splitlines() if line.startswith("    | ")]
    assert any(words in line for line in quoted), done.err


def test_a_worker_that_cannot_load(box: Box) -> None:
    """It is loading before the cluster has formed; its own words count, not its exit status."""
    done = run_with(box, "load_fail=1")
    done.failed(1, f"stage {MIDDLE}", "told to fail while loading")
    error = done.json["error"]
    assert (error["code"], error["stage"]) == ("worker_failed", MIDDLE)
    assert error["phase"] == "starting the worker"
    assert done.json["tokens"] == []


@pytest.mark.parametrize(("step", "phase"), [(PREFILL, "prefill"), (DECODE, "decode")])
def test_a_worker_that_fails_a_step(box: Box, step: int, phase: str) -> None:
    done = run_with(box, f"fail_at={step}")
    assert_blamed(done, "worker_failed", phase, f"told to fail at step {step}")
    # The fault travels another way than the last token before it, and on a starved machine may be there first.
    assert step - 1 <= len(done.json["tokens"]) <= step


@pytest.mark.parametrize(("step", "phase"), [(PREFILL, "prefill"), (DECODE, "decode")])
@pytest.mark.parametrize(
    ("knob", "ending", "words"),
    [("exit_at", "exit status 7", "exiting at step"), ("kill_at", "SIGKILL", "killing itself at step")],
)
def test_a_worker_that_ends_in_a_step(box: Box, knob: str, ending: str, words: str, step: int, phase: str) -> None:
    done = run_with(box, f"{knob}={step}")
    assert_blamed(done, "worker_died", phase, f"stage {MIDDLE}'s worker", ending)
    assert_last_words(done, words)
    assert ("ran out of memory" in done.err) == (knob == "kill_at"), "the remedy travels with the fault"


@pytest.mark.parametrize(
    ("step", "phase", "option"), [(PREFILL, "prefill", "--response-timeout"), (DECODE, "decode", "--token-timeout")]
)
def test_a_worker_that_hangs_in_a_step(box: Box, step: int, phase: str, option: str) -> None:
    done = run_with(box, f"hang_at={step}", option, "2")
    assert_blamed(done, "deadline_exceeded", phase, f"stage {MIDDLE}'s worker did not finish")
    assert_last_words(done, f"hanging at step {step}")
    assert len(done.json["tokens"]) == step


def test_a_stopped_node_is_noticed_by_its_silence(box: Box) -> None:
    run = start_in(box, "decode", MIDDLE, "--silence-timeout", "1.5", "--stop-timeout", "0.5", "--kill-timeout", "0.5")
    run.strike(run.node(MIDDLE), signal.SIGSTOP)
    done = run.end()
    done.failed(1, f"stage {MIDDLE}", "silent")
    assert done.took_s < 1.5 + NOTICED_S


def test_a_node_that_was_stopped_for_a_moment_is_not_lost(box: Box) -> None:
    run = box.start(*("--seed", "--model", "stub:layers=4,step_ms=20", "--max-tokens", "40", "--debug"))
    run.wait_output()
    os.kill(run.node(0), signal.SIGSTOP)
    os.kill(run.node(0), signal.SIGCONT)
    assert len(run.end().expect(0).out) == 40
