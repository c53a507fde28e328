from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from ppsmoke.bundle.folder import open_folder
from ppsmoke.bundle.reader import read_bundle
from ppsmoke.bundle.recorder import RecordedLog, RunRecorder
from ppsmoke.bundle.writer import BundleWriter
from ppsmoke.redaction import Redactor
from ppsmoke.report.analysis import analyse
from ppsmoke.report.source import read_story
from ppsmoke.run_events import (
    ClockCompared,
    MemberSeen,
    NoteMade,
    PhaseEntered,
    RecordsDropped,
    Seen,
    StagePace,
    StepRan,
    TokenArrived,
)

RUN = "ab" * 16


def record(directory: Path) -> RunRecorder:
    folder = open_folder(RUN, directory, {})
    recorder = RunRecorder(folder, BundleWriter(directory, Redactor(["hush-hush"]), warn=pytest.fail))
    recorder.begin(RUN, {"plan": {"run_id": RUN}})
    return recorder


def test_what_was_recorded_reads_back_on_one_axis(tmp_path: Path) -> None:
    recorder = record(tmp_path)
    recorder.happened(PhaseEntered("Planning"))
    now = time.monotonic()
    recorder.happened(MemberSeen(1, 0, "suspect", 3, "hush-hush"), Seen(1, now - 0.001, 0.25))
    step = StepRan(1, "cd" * 16, 2, 0, 1, *(now + offset for offset in (0.0, 0.1, 0.2, 0.3, 0.4)))
    recorder.happened(step, Seen(1, step.arrived, 0.25))
    recorder.finish({"exit_status": 0, "text": "hush-hush"})
    recorder.happened(PhaseEntered("never"))
    bundle = read_bundle(tmp_path)
    assert bundle.run == {"exit_status": 0, "text": "[secret]"}
    assert bundle.plan == {"plan": {"run_id": RUN}}
    assert bundle.environment is not None
    assert (bundle.environment["run_id"], bundle.environment["format"]) == (RUN, 1)
    assert abs(bundle.environment["began_unix"] - time.time()) < 60
    planning, member = sorted(bundle.events, key=lambda recorded: recorded.source is not None)
    assert (planning.event, planning.source, planning.within) == (PhaseEntered("Planning"), None, 0.0)
    assert (member.event, member.source, member.within) == (MemberSeen(1, 0, "suspect", 3, "[secret]"), 1, 0.25)
    assert 0 <= planning.at < 60
    (span,) = bundle.spans
    assert (span.step.stage, span.step.sequence, span.within) == (1, 2, 0.25)
    assert span.step.arrived == pytest.approx(member.at + 0.001, abs=1e-5)
    assert span.step.written - span.step.arrived == pytest.approx(0.4, abs=1e-5)


def test_a_run_that_is_killed_leaves_what_was_written(tmp_path: Path) -> None:
    recorder = record(tmp_path)
    recorder.happened(PhaseEntered("Running"))
    bundle = read_bundle(tmp_path)
    assert [recorded.event for recorded in bundle.events] == [PhaseEntered("Running")]
    assert bundle.run is None
    recorder.finish({})


def test_a_warning_of_the_parts_below_is_an_event(tmp_path: Path) -> None:
    recorder = record(tmp_path)
    logger = logging.getLogger("ppsmoke.test_recorder")
    handler = RecordedLog(recorder)
    logger.addHandler(handler)
    try:
        logger.warning("a %s word", "hush-hush")
        logger.info("not this")
    finally:
        logger.removeHandler(handler)
    recorder.finish({})
    assert [recorded.event for recorded in read_bundle(tmp_path).events] == [NoteMade("a [secret] word", "warning")]


def test_the_files_of_a_run_that_is_held_for_long_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_TOKENS", "MOST_REGULAR", "MOST_STEPS"):
        monkeypatch.setattr(f"ppsmoke.bundle.recorder.{name}", 128)
    recorder = record(tmp_path)
    count = 4096
    now = time.monotonic()
    for number in range(count):
        recorder.happened(TokenArrived("cd" * 16, number, 7, "max_tokens" if number == count - 1 else None))
        for stage in range(2):
            recorder.happened(StepRan(stage, "cd" * 16, number, 0, 1, *[now + number] * 5), Seen(stage, now, 0.0))
            recorder.happened(StagePace(stage, 1, 0.001, 0.001))
            recorder.happened(ClockCompared(stage, 0.0, 0.001, 0.002))
    recorder.happened(PhaseEntered("Completed"))
    recorder.finish({"exit_status": 0})
    bundle = read_bundle(tmp_path)
    tokens = [event.index for _, event in bundle.of_kind(TokenArrived)]
    assert (tokens[0], tokens[-1]) == (0, count - 1)
    assert len(tokens) < 1024
    assert len(bundle.events) < 3 * 1024
    steps = {(span.step.sequence, span.step.stage) for span in bundle.spans}
    assert len(steps) < 1024
    alone = [sequence for sequence, stage in steps if (sequence, 1 - stage) not in steps]
    assert len(alone) <= 8, "but for where the choice became stricter, all stages' steps of a token are there"
    assert [event for _, event in bundle.of_kind(PhaseEntered)] == [PhaseEntered("Completed")]
    (dropped,) = (event for _, event in bundle.of_kind(RecordsDropped))
    assert dropped.stage is None
    assert dropped.steps == 2 * count - len(steps)
    assert dropped.events == 5 * count - (len(bundle.events) - 2)
    assert analyse(read_story(tmp_path)).tokens == count


def test_no_value_of_the_environment_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PP_SOMETHING", "a-value-of-my-own")
    monkeypatch.setattr("sys.argv", ["pp-smoke-run", "--api-key", "q1w2e3r4t5"])
    recorder = record(tmp_path)
    recorder.finish({})
    text = (tmp_path / "environment.json").read_text()
    assert "a-value-of-my-own" not in text
    assert "q1w2e3r4t5" not in text
    assert json.loads(text)["command"][:2] == ["pp-smoke-run", "--api-key"]
