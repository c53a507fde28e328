"""Ctrl-C, SIGTERM and SIGHUP in every phase: the same teardown, the right exit status, nothing left."""

from __future__ import annotations

import os
import select
import signal

import pytest

from tests.e2e.kit import CLI, NOTICED_S, SCRIPT, Box, Done, wait_until
from tests.e2e.phases import FIRST, MIDDLE, PHASES, start_in

STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def assert_ended(done: Done, number: signal.Signals) -> None:
    done.failed(STATUSES[number], f"interrupted by {number.name}")
    assert done.took_s < NOTICED_S


@pytest.mark.parametrize(
    ("number", "phase"),
    [
        pytest.param(number, phase, marks=() if number is signal.SIGINT or phase == "decode" else pytest.mark.slow)
        for number in STATUSES
        for phase in PHASES
    ],
)
def test_a_signal_ends_the_run_in_order(box: Box, number: signal.Signals, phase: str) -> None:
    run = start_in(box, phase, MIDDLE)
    run.signal(number)
    assert_ended(run.end(), number)
    assert box.logs()


@pytest.mark.parametrize("phase", ["load", "decode"])
def test_ctrl_c_reaches_the_whole_foreground_group(box: Box, phase: str) -> None:
    run = start_in(box, phase, FIRST)
    run.signal_group(signal.SIGINT)
    assert_ended(run.end(), signal.SIGINT)


@pytest.mark.parametrize("phase", ["boot", "decode"])
def test_ctrl_c_twice_at_once(box: Box, phase: str) -> None:
    run = start_in(box, phase, FIRST)
    run.signal(signal.SIGINT)
    run.signal(signal.SIGINT)
    assert_ended(run.end(), signal.SIGINT)


def test_the_second_ctrl_c_does_not_wait_for_a_stuck_stage(box: Box) -> None:
    run = start_in(box, "decode", FIRST, "--stop-timeout", "600", "--kill-timeout", "600", "--silence-timeout", "600")
    os.kill(run.node(MIDDLE), signal.SIGSTOP)
    run.signal(signal.SIGINT)
    run.wait_line("SIGINT: stopping")
    run.signal(signal.SIGINT)
    done = run.end()
    assert_ended(done, signal.SIGINT)
    assert "SIGINT again: killing every process" in done.err


def test_one_ctrl_c_kills_a_stuck_stage_after_its_deadline(box: Box) -> None:
    run = start_in(box, "decode", FIRST, "--stop-timeout", "0.5", "--kill-timeout", "0.5", "--silence-timeout", "600")
    os.kill(run.node(MIDDLE), signal.SIGSTOP)
    run.signal(signal.SIGINT)
    done = run.end()
    assert_ended(done, signal.SIGINT)
    assert f"stage {MIDDLE} did not stop within 0.5 s" in done.err


def test_a_signal_in_json_mode_prints_its_object(box: Box) -> None:
    run = start_in(box, "prefill", FIRST, "--json")
    run.signal(signal.SIGTERM)
    done = run.end()
    assert_ended(done, signal.SIGTERM)
    said = done.json
    assert said["exit_status"] == 143
    assert said["error"]["code"] == "interrupted"


@pytest.mark.parametrize(
    ("number", "program"),
    [(signal.SIGINT, CLI), (signal.SIGTERM, CLI), (signal.SIGHUP, CLI), (signal.SIGINT, (SCRIPT,))],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "SIGINT to the script"],
)
def test_a_signal_before_the_run_begins(box: Box, number: signal.Signals, program: tuple[str, ...]) -> None:
    """While it reads a prompt that does not end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        with open(reading, "rb") as stdin:
            run = box.start("--seed", "--model", "stub:layers=8", "--prompt", "-", program=program, stdin=stdin)
            while True:
                try:
                    os.write(writing, b"x" * 4096)
                except BlockingIOError:
                    break
        # The pipe was full: it takes more as soon as the program has begun to read.
        assert select.select([], [writing], [], 60)[1]
        run.signal(number)
        done = run.end()
    finally:
        os.close(writing)
    assert_ended(done, number)
    assert not box.logs()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_while_verifying(box: Box, number: signal.Signals) -> None:
    run = box.start("--seed", "--model", "stub:layers=8,step_ms=1000", "--max-tokens", "2", "--verify")
    run.wait_line("^done ")
    wait_until("the verifying process", lambda: any("ppsmoke_worker.reference" in c for _, c, _ in box.processes()))
    run.signal_group(number)
    assert_ended(run.end(), number)
