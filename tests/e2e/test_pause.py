"""Ctrl-Z and fg: a run that is stopped for longer than silence is borne goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.kit import Box, Program, stub_text, wait_until
from tests.e2e.phases import MIDDLE, STAGES

TOKENS = 90
MODEL = "stub:layers=8,step_ms=20"
SILENCE_S = 2.0


def start(box: Box, *more: str) -> Program:
    """In a group but not a session of its own, as a shell starts its jobs: else nothing stops on SIGTSTP."""
    return box.start(
        *("--seed", "-n", str(STAGES), "--model", MODEL, "--max-tokens", str(TOKENS), "--debug"),
        *("--silence-timeout", str(SILENCE_S), *more),
        start_new_session=False,
        process_group=0,
    )


def is_stopped(run: Program) -> bool:
    return psutil.Process(run.process.pid).status() == psutil.STATUS_STOPPED


def stay_stopped(run: Program, seconds: float) -> None:
    """Ctrl-Z as the terminal sends it, a while, then what fg does."""
    run.signal_group(signal.SIGTSTP)
    wait_until("the stop", lambda: is_stopped(run))
    time.sleep(seconds)
    assert is_stopped(run)
    run.signal_group(signal.SIGCONT)


@pytest.mark.parametrize("feedback", ["direct", pytest.param("orchestrator", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_in_mid_text_gives_the_whole_text(box: Box, feedback: str) -> None:
    run = start(box, "--feedback", feedback, "--token-timeout", "4")
    run.wait_output()
    stay_stopped(run, 2.5 * SILENCE_S)
    done = run.end().expect(0)
    assert done.text == stub_text("Say hello", TOKENS, MODEL)
    assert "stopped: the stages wait; fg or bg goes on" in done.err
    assert "going on after" in done.err
    assert "fell silent" not in done.err


@pytest.mark.slow
def test_twice_and_with_the_usual_patience(box: Box) -> None:
    run = start(box, "--silence-timeout", "5")
    run.wait_output()
    stay_stopped(run, 8.0)
    stay_stopped(run, 8.0)
    assert run.end().expect(0).text == stub_text("Say hello", TOKENS, MODEL)


@pytest.mark.slow
@pytest.mark.parametrize("feedback", ["direct", "orchestrator"])
def test_a_stop_that_no_connection_outlives(box: Box, feedback: str) -> None:
    run = start(box, "--feedback", feedback)
    run.wait_output()
    stay_stopped(run, 36.0)
    done = run.end().expect(0)
    assert done.text == stub_text("Say hello", TOKENS, MODEL)
    assert "connection lost, resumed after" in done.err


@pytest.mark.slow
def test_a_stop_while_the_nodes_start_does_no_harm(box: Box) -> None:
    run = start(box)
    run.node(MIDDLE)
    stay_stopped(run, 2.5 * SILENCE_S)
    assert run.end().expect(0).text == stub_text("Say hello", TOKENS, MODEL)


def test_killed_while_it_is_stopped_it_leaves_nothing(box: Box) -> None:
    run = start(box)
    run.wait_output()
    run.signal_group(signal.SIGTSTP)
    wait_until("the stop", lambda: is_stopped(run))
    run.strike(run.process.pid, signal.SIGKILL)
    run.process.wait(10)
    box.wait_gone()


def test_where_no_shell_could_go_on_from_it_nothing_stops(box: Box, tmp_path: Path) -> None:
    run = box.start("--seed", "--model", MODEL, "--max-tokens", "20", "--debug")  # leads a session of its own
    run.wait_output()
    os.kill(run.process.pid, signal.SIGTSTP)
    run.wait_line("going on after 0 s")
    assert run.end().expect(0).text == stub_text("Say hello", 20, MODEL)
