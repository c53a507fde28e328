"""Kill -9 of every kind of process in every phase: noticed at once, named, and nothing is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.kit import NOTICED_S, Box, Done, wait_until
from tests.e2e.phases import FIRST, LAST, MIDDLE, PHASES, STAGES, start_in


def node_by_node(phases: Sequence[str]) -> list[Any]:
    """Every stage in every phase; quick are each phase with one stage and each stage with at least one phase."""
    return [
        pytest.param(stage, phase, marks=() if (number + stage) % STAGES == LAST else pytest.mark.slow)
        for number, phase in enumerate(phases)
        for stage in range(STAGES)
    ]


def assert_noticed(done: Done, box: Box, *parts: str) -> None:
    done.failed(1, *parts)
    assert done.took_s < NOTICED_S
    assert box.logs(), "the log directory stays"


@pytest.mark.parametrize(("stage", "phase"), node_by_node(PHASES))
def test_a_killed_node(box: Box, stage: int, phase: str) -> None:
    run = start_in(box, phase, stage)
    run.strike(run.node(stage))
    done = run.end()
    assert_noticed(done, box, f"stage {stage}'s node was killed by SIGKILL")
    assert "fix: Mostly the kernel does that when memory runs out" in done.err


@pytest.mark.parametrize(("stage", "phase"), node_by_node(PHASES[1:]))
def test_a_killed_worker(box: Box, stage: int, phase: str) -> None:
    run = start_in(box, phase, stage)
    run.strike(run.worker(stage))
    done = run.end()
    assert_noticed(done, box, f"stage {stage}'s worker", "SIGKILL")


@pytest.mark.parametrize("phase", PHASES)
def test_the_killed_orchestrator_takes_all_with_it(box: Box, phase: str) -> None:
    run = start_in(box, phase, FIRST)
    run.strike(run.process.pid)
    run.process.wait(NOTICED_S)
    box.wait_gone()
    assert run.end().status == -9
    assert box.logs()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel must wake the node")
def test_the_killed_orchestrator_takes_a_stopped_node_with_it(box: Box) -> None:
    run = start_in(box, "decode", MIDDLE)
    os.kill(run.worker(MIDDLE), signal.SIGSTOP)
    os.kill(run.node(MIDDLE), signal.SIGSTOP)
    run.strike(run.process.pid)
    run.process.wait(NOTICED_S)
    box.wait_gone()
    assert run.end().status == -9


def test_a_node_killed_before_it_told_its_address(box: Box) -> None:
    run = box.start("--seed", "-n", "3", "--model", "stub:layers=8", "--debug")

    def second_node() -> int | None:
        nodes = (pid for pid, command, env in box.processes() if "ppsmoke.node_cli" in command and env["STAGE"] == "1")
        return next(nodes, None)

    run.strike(wait_until("the start of stage 1", second_node))
    assert_noticed(run.end(), box, "stage 1's node was killed by SIGKILL")


@pytest.mark.parametrize(
    ("what", "code", "phase"),
    [
        ("node", "stage_died", "load"),
        ("worker", "worker_died", "prefill"),
        pytest.param("node", "stage_died", "prefill", marks=pytest.mark.slow),
        pytest.param("worker", "worker_died", "load", marks=pytest.mark.slow),
    ],
)
def test_json_says_which_stage_died(box: Box, phase: str, what: str, code: str) -> None:
    run = start_in(box, phase, MIDDLE, "--json")
    run.strike(run.node(MIDDLE) if what == "node" else run.worker(MIDDLE))
    done = run.end()
    assert_noticed(done, box, f"stage {MIDDLE}")
    said = done.json
    assert said["exit_status"] == 1
    assert said["error"]["code"] == code
    assert said["error"]["stage"] == MIDDLE
    assert said["error"]["phase"]
    assert f"stage {MIDDLE}'s {what}" in said["error"]["message"]
    assert said["tokens"] == []


def test_all_nodes_killed_at_once(box: Box) -> None:
    run = start_in(box, "decode", FIRST)
    for stage in range(STAGES):
        run.strike(run.node(stage))
    assert_noticed(run.end(), box, "node was killed by SIGKILL")


def test_orchestrator_and_a_node_killed_together(box: Box) -> None:
    """The worker of a killed node ends without anybody's help."""
    run = start_in(box, "prefill", MIDDLE)
    run.worker(MIDDLE)
    node = run.node(MIDDLE)
    run.strike(run.process.pid)
    run.strike(node)
    run.process.wait(NOTICED_S)
    box.wait_gone()
    assert run.end().status == -9
