"""Reports on what real runs left, with the stub in place of the model: the report and the records must fit together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ppsmoke.bundle.names import EVENTS
from ppsmoke.report.analysis import Analysis, analyse
from ppsmoke.report.source import read_story
from ppsmoke.report.text import page
from tests.cli.kit import PATIENCE_S, command, environment, run_cli
from tests.report.collector import ENDPOINT, collecting

SHAPE = "layers=6,hidden=64"


def reported(directory: Path) -> Analysis:
    analysis = analyse(read_story(directory))
    assert max(len(line) for line in page(analysis)) <= 80
    assert analysis.lost == 0
    return analysis


def test_a_slow_stage_of_a_real_run_is_named_and_its_spans_are_exported(tmp_path: Path) -> None:
    bundle, model = tmp_path / "run", f"stub:{SHAPE},step_ms=20,at_stage=1"
    options = ("--seed", "-n", "3", "--model", model, "--max-tokens", "12", "--log-dir", str(bundle))
    with collecting() as collector:
        done = run_cli(environment(tmp_path, **{ENDPOINT: collector.address}), *options)
    assert done.returncode == 0, done.stderr
    if find_spec("opentelemetry") is None:
        assert "the libraries are missing; pip install 'pp-smoke-run[otel]'" in done.stderr
    else:
        assert [path for path, _, _ in collector.got] == ["/v1/traces"]
    analysis = reported(bundle)
    found = next(culprit for culprit in analysis.culprits if culprit.about == "tokens")
    assert found.sentence.startswith("stage 1 computes ")
    assert (analysis.ending.how, analysis.tokens, analysis.stage_count) == ("completed", 12, 3)
    assert [phase.phase for phase in analysis.phases][-3:] == ["Running", "TearingDown", "Done"]
    assert all(stage.boot and stage.ready_at and stage.device == "STUB" for stage in analysis.stages)
    # The phases cover the run, and each stage's states follow each other.
    assert sum(phase.seconds for phase in analysis.phases) == pytest.approx(analysis.total_s, abs=0.5)


def test_the_wait_that_ended_a_real_run_is_named(tmp_path: Path) -> None:
    bundle, model = tmp_path / "run", f"stub:{SHAPE},hang_at=3,at_stage=1"
    options = ("--seed", "-n", "3", "--model", model, "--token-timeout", "2", "--log-dir", str(bundle))
    assert run_cli(environment(tmp_path), *options).returncode == 1
    analysis = reported(bundle)
    assert analysis.ending.stage == 1
    # Mostly the stage itself says that its worker is late, on a busy machine the orchestrator says that a token is.
    assert analysis.ending.sentence.startswith("the wait for ")
    assert "missing: step 3 of stage 1" in analysis.ending.sentence
    assert any("hanging at step 3 as told" in line for line in analysis.log_tail)


def test_a_real_run_that_was_killed(tmp_path: Path) -> None:
    bundle, model = tmp_path / "run", f"stub:{SHAPE},step_ms=50"
    arguments = ("--seed", "-n", "2", "--model", model, "--max-tokens", "4000", "--log-dir", str(bundle))
    running = subprocess.Popen(
        command(*arguments),
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (bundle / EVENTS).is_file() or '"token_arrived"' not in (bundle / EVENTS).read_text():
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert reported(bundle).ending.how == "still running"
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    analysis = reported(bundle)
    assert (analysis.ending.how, analysis.ending.phase) == ("cut off", "Running")
    assert analysis.tokens >= 1
