from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ppsmoke.bundle.reader import read_bundle
from ppsmoke.errors import UsageError
from ppsmoke.run_events import (
    PhaseEntered,
    RunBegan,
    StageDoing,
    StageState,
    TokenArrived,
    event_from_json,
    event_json,
)

RUN = "ab" * 16
BEGAN = RunBegan(RUN, "stub", ((0, 2), (2, 4)), 3, 8, False)
DOING = StageDoing(1, StageState.FETCHING, "fetching", 5, 10, "bytes")


def test_an_event_reads_back_as_it_was() -> None:
    for event in (BEGAN, DOING, TokenArrived(RUN, 0, 7, "stop")):
        assert event_from_json(json.loads(json.dumps(event_json(event, at=1.0, source=None)))) == event


def test_an_event_of_a_later_version_is_passed_over() -> None:
    assert event_from_json({"event": "unheard_of", "at": 1.0}) is None
    assert event_from_json({"event": "stage_doing", "stage": 1, "state": "unheard_of"}) is None
    assert event_from_json({"event": "stage_doing"}) is None
    assert event_from_json({"event": "phase_entered", "phase": "Idle", "new_field": 1}) == PhaseEntered("Idle")


def test_a_line_that_was_cut_off_costs_that_line_only(tmp_path: Path) -> None:
    late = json.dumps(event_json(DOING, at=5.0, source=1) | {"within": 0.25})
    early = json.dumps(event_json(BEGAN, at=0.5, source=None))
    (tmp_path / "events.jsonl").write_text(f"{late}\n{early}\n{late[:-9]}")
    (tmp_path / "spans.jsonl").write_text('{"stage": 0, "arrived": 1.0')
    bundle = read_bundle(tmp_path)
    assert [(r.at, r.source, r.event, r.within) for r in bundle.events] == [
        (0.5, None, BEGAN, 0.0),
        (5.0, 1, DOING, 0.25),
    ]
    assert (bundle.skipped, bundle.run, bundle.plan, bundle.spans) == (2, None, None, ())
    assert [event for _, event in bundle.of_kind(StageDoing)] == [DOING]


@pytest.mark.parametrize("line", ["[" * 100_000, f'{{"at": 1{"0" * 400}}}', f"1{'0' * 5000}", "\x00\xff", "{" * 9])
def test_a_line_of_nonsense_costs_that_line_only(tmp_path: Path, line: str) -> None:
    good = json.dumps(event_json(BEGAN, at=0.5, source=None))
    (tmp_path / "events.jsonl").write_text(f"{line}\n{good}\n")
    (tmp_path / "run.json").write_text(line)
    bundle = read_bundle(tmp_path)
    whole = {"at": None} if line.endswith("}") else None
    assert ([r.event for r in bundle.events], bundle.skipped, bundle.run) == ([BEGAN], 1, whole)


def test_a_path_may_be_a_string_and_a_file_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert read_bundle(str(tmp_path)).run == {}
    with pytest.raises(UsageError, match=r"run\.json is no run's directory: it is a file"):
        read_bundle(tmp_path / "run.json")


def test_numbers_that_no_run_has_are_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        '{"a": 1e999, "b": NaN, "c": -Infinity, "d": 1e300, "e": [1.5, -7, 9007199254740993]}'
    )
    assert read_bundle(tmp_path).run == {"a": None, "b": None, "c": None, "d": None, "e": [1.5, -7, None]}


def test_pipes_in_the_place_of_files_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    for name in ("events.jsonl", "spans.jsonl", "run.json", "stage-0.log"):
        os.mkfifo(tmp_path / name)
    bundle = read_bundle(tmp_path)
    assert (bundle.events, bundle.run, bundle.plan, bundle.stage_logs) == ((), None, {}, {})


def test_spans_and_logs_are_found(tmp_path: Path) -> None:
    times = {"arrived": 1.0, "began": 1.1, "done": 1.2, "back": 1.3, "written": 1.4}
    span = {"stage": 1, "request_id": RUN, "sequence": 0, "part": 0, "seq_len": 3, **times, "within": 0.001}
    (tmp_path / "spans.jsonl").write_text(json.dumps(span) + "\n" + json.dumps(span | {"began": "soon"}) + "\n")
    (tmp_path / "run.json").write_text('{"exit_status": 0}')
    for name in ("stage-0.log", "stage-10.log", "instance-123.log", "stage-x.log"):
        (tmp_path / name).write_text("said\n")
    bundle = read_bundle(tmp_path)
    assert [(s.step.stage, s.step.done, s.within) for s in bundle.spans] == [(1, 1.2, 0.001)]
    assert bundle.skipped == 1
    assert bundle.run == {"exit_status": 0}
    assert (list(bundle.stage_logs), list(bundle.instance_logs)) == ([0, 10], [123])


def test_a_directory_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run's directory"):
        read_bundle(tmp_path)
