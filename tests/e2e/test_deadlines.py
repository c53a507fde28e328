"""Every deadline can fire, and says what was waited for, which stage was missing, and how long."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.kit import Box, Done, wait_until

FOREVER_MS = 600_000


def error_of(done: Done, stage: int, phase: str) -> str:
    error = done.json["error"]
    assert error["code"] == "deadline_exceeded"
    assert error["stage"] == stage
    assert phase in error["phase"]
    assert isinstance(error["message"], str)
    return error["message"]


def test_boot(box: Box) -> None:
    """A stopped node prints no address."""
    run = box.start("--seed", "--model", "stub:layers=4", "--boot-timeout", "3", "--json")

    def second_node() -> int | None:
        nodes = (pid for pid, command, env in box.processes() if "ppsmoke.node_cli" in command and env["STAGE"] == "1")
        return next(nodes, None)

    os.kill(wait_until("the start of stage 1", second_node), signal.SIGSTOP)
    done = run.end().failed(1, "stage 1", "did not print its address within 3 s")
    error_of(done, 1, "spawn")


def test_join(box: Box) -> None:
    """A node that is stopped as soon as it has told its address."""
    run = box.start(
        *("--seed", "--model", "stub:layers=4", "--join-timeout", "5", "--json", "--debug"),
        *("--silence-timeout", "600", "--stop-timeout", "0.5", "--kill-timeout", "0.5"),
        # On a busy machine it may have joined before it was stopped.
        *("--ready-timeout", "5"),
    )
    os.kill(run.node(1), signal.SIGSTOP)
    done = run.end().failed(1, "longer than 5 s", "stage 1")
    error = done.json["error"]
    assert error["code"] == "deadline_exceeded"
    if error["message"].startswith("join "):
        assert error["stage"] == 1
    else:  # its neighbour waits for it, and so is waited for, too
        assert error["message"].startswith("preparing ")
        assert error["stage"] in (0, 1)


def test_ready(box: Box) -> None:
    model = f"stub:layers=4,load_ms={FOREVER_MS},at_stage=1"
    done = box.run("--seed", "--model", model, "--ready-timeout", "3", "--json")
    done.failed(1, "stage 1", "3 s")
    message = error_of(done, 1, "")
    assert "stage 1" in message
    assert "last log lines of stage 1" in done.err


def test_response(box: Box) -> None:
    model = f"stub:layers=4,step_ms={FOREVER_MS},at_stage=1"
    done = box.run("--seed", "--model", model, "--response-timeout", "1.5", "--json").failed(1, "stage 1", "prefill")
    error_of(done, 1, "prefill")


def test_token(box: Box) -> None:
    model = "stub:layers=4,hang_at=2,at_stage=0"
    done = box.run("--seed", "--model", model, "--token-timeout", "1.5", "--json").failed(1, "stage 0", "decode")
    error_of(done, 0, "decode")
    assert len(done.json["tokens"]) == 2


def test_stop(box: Box) -> None:
    """A stage that does not stop is killed, and the run is as good as it was."""
    run = box.start(
        *("--seed", "--model", "stub:layers=4,step_ms=40", "--max-tokens", "50", "--debug", "--silence-timeout", "600"),
        *("--stop-timeout", "0.5", "--kill-timeout", "0.5"),
    )
    run.wait_line("Running -> TearingDown")
    os.kill(run.node(0), signal.SIGSTOP)
    done = run.end()
    assert len(done.expect(0).out) == 50


@pytest.mark.parametrize(
    ("model", "phase"),
    [
        pytest.param(f"stub:layers=4,load_ms={FOREVER_MS}", "preparing the stages", marks=pytest.mark.slow),
        pytest.param(f"stub:layers=4,step_ms={FOREVER_MS}", "prefill", marks=pytest.mark.slow),
        ("stub:layers=4,step_ms=100", "decode"),
    ],
)
def test_budget(box: Box, model: str, phase: str) -> None:
    started = time.monotonic()
    done = box.run("--seed", "--model", model, "--max-tokens", "2000", "--budget", "6", "--json")
    done.failed(1, "the budget of 6 s is spent", phase)
    error = done.json["error"]
    assert error["code"] == "deadline_exceeded"
    assert phase in error["phase"]
    assert time.monotonic() - started >= 6


def test_budget_at_boot(box: Box) -> None:
    done = box.run("--seed", "-n", "8", "--model", "stub:layers=8", "--budget", "0.3", "--json")
    done.failed(1, "the budget of 0.3 s is spent", "boot")
    assert done.took_s < 10
