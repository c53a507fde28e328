"""Held runs and the requests to them, as files: found, taken once, answered, and forgotten."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault, UsageError
from ppsmoke.held_runs import (
    AnswerLine,
    Correspondence,
    HeldRun,
    Mailbox,
    forget,
    forget_dead,
    new_request,
    read_held,
    refusal,
)
from ppsmoke.process_mark import own_mark
from ppsmoke.redeploy_command import choose

RUN = HeldRun("ab" * 16, "0.1.0", 2, "stub:", 2, False, own_mark())
OTHER = replace(RUN, run_id="cd" * 16)
REQUEST = new_request(RUN, sha256="0" * 64, version="0.1.0", protocol=2, source="code 00000000")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "some.whl"
    path.write_bytes(b"wheel")
    return path


def test_a_run_is_found_while_it_is_held_and_only_by_its_own_requests(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "held"
    box, other = Mailbox(folder, RUN), Mailbox(folder, OTHER)
    assert read_held(folder) == [RUN, OTHER]
    assert folder.stat().st_mode & 0o077 == 0
    asked = Correspondence.begin(folder, REQUEST, wheel)
    assert other.take() is None
    assert not asked.taken
    assert box.take() == REQUEST
    assert box.take() is None
    assert asked.taken
    assert box.wheel(REQUEST).read_bytes() == b"wheel"
    box.answer(REQUEST, AnswerLine("going"))
    assert asked.lines() == [AnswerLine("going")]
    box.answer(REQUEST, AnswerLine("over", done=True, error={"code": "run_failed"}))
    assert asked.lines() == [AnswerLine("over", done=True, error={"code": "run_failed"})]
    assert asked.lines() == []
    asked.close()
    box.answer(REQUEST, AnswerLine("said to nobody"))
    box.close()
    assert read_held(folder) == [OTHER]
    other.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["[" * 100_000, "\x00", '{"run_id": 1}', "7"])
def test_a_request_that_is_none_is_taken_away(tmp_path: Path, text: str) -> None:
    box = Mailbox(tmp_path / "held", RUN)
    (tmp_path / "held" / f"{RUN.run_id}.aa.request.json").write_text(text)
    assert box.take() is None
    assert not list((tmp_path / "held").glob("*.request.json"))


def test_a_request_that_was_taken_back_is_not_served(tmp_path: Path, wheel: Path) -> None:
    box = Mailbox(tmp_path / "held", RUN)
    Correspondence.begin(tmp_path / "held", REQUEST, wheel).close()
    assert box.take() is None


def test_what_a_killed_run_left_is_forgotten_and_no_other_run(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "held"
    Mailbox(folder, RUN)
    Mailbox(folder, OTHER)
    Correspondence.begin(folder, REQUEST, wheel)
    (folder / f"{'ef' * 16}.held.json").write_text('{"torn')
    forget(folder, RUN)
    assert read_held(folder) == [OTHER]


def test_what_a_killed_asker_left_is_removed_a_day_later_and_no_run_with_it(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "held"
    Mailbox(folder, RUN)
    Correspondence.begin(folder, REQUEST, wheel)
    Mailbox(folder, OTHER)
    assert len(list(folder.iterdir())) == 4
    for path in folder.iterdir():
        os.utime(path, (1.0, 1.0))
    Mailbox(folder, OTHER)
    assert read_held(folder) == [RUN, OTHER]
    assert len(list(folder.iterdir())) == 2


def test_what_an_asker_left_of_a_run_that_has_ended_goes_with_the_next_run(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "held"
    box = Mailbox(folder, RUN)
    Correspondence.begin(folder, REQUEST, wheel)
    box.close()
    Mailbox(folder, OTHER).close()
    assert len(list(folder.iterdir())) == 2  # its asker may be about to read
    for path in folder.iterdir():
        os.utime(path, (time.time() - 120,) * 2)
    Mailbox(folder, OTHER).close()
    assert list(folder.iterdir()) == []


def test_an_answer_is_read_only_when_its_line_is_whole(tmp_path: Path, wheel: Path) -> None:
    box = Mailbox(tmp_path / "held", RUN)
    asked = Correspondence.begin(tmp_path / "held", REQUEST, wheel)
    box.answer(REQUEST, AnswerLine("one"))
    path = next((tmp_path / "held").glob("*.answer.jsonl"))
    whole = path.read_text()
    path.write_text(whole + whole[:7])
    assert asked.lines() == [AnswerLine("one")]
    path.write_text(whole + whole)
    assert asked.lines() == [AnswerLine("one")]


def test_a_folder_that_cannot_be_made_is_an_error_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("a file")
    with pytest.raises(EnvironmentFault, match="the folder of held runs"):
        Mailbox(tmp_path / "held", RUN)


@pytest.mark.parametrize(
    ("version", "protocol", "why"),
    [
        ("0.1.0", 2, None),
        ("0.2.0", 2, "is version 0.1.0, and the held run is 0.2.0"),
        ("0.1.0", 3, "the held run speaks 3"),
    ],
)
def test_code_of_another_version_or_protocol_cannot_serve(version: str, protocol: int, why: str | None) -> None:
    said = refusal(REQUEST, version=version, protocol=protocol)
    assert said is None if why is None else said is not None and why in said


def test_one_run_is_meant_or_the_user_is_asked_to_say_which() -> None:
    label = "pp-smoke-abababababab"
    assert choose([RUN], None) is RUN
    assert choose([RUN, OTHER], label) is RUN
    assert choose([RUN, OTHER], RUN.run_id[:8]) is RUN
    with pytest.raises(UsageError, match="no run 00000000 is held by this user"):
        choose([RUN, OTHER], "00000000")
    twin = replace(RUN, run_id=f"{RUN.run_id[:9]}{'0' * 23}")
    with pytest.raises(UsageError, match="2 runs' ids begin with abababab: abababab"):
        choose([RUN, twin], "abababab")
    assert choose([RUN, twin], RUN.run_id[:12]) is RUN
    with pytest.raises(UsageError, match="no run is held by this user"):
        choose([], None)
    with pytest.raises(UsageError, match=f"2 runs are held here: {label}, pp-smoke-cdcdcdcdcdcd"):
        choose([RUN, OTHER], None)
    with pytest.raises(UsageError, match="no run pp-smoke-000000000000 is held"):
        choose([RUN], "pp-smoke-000000000000")


def test_the_next_run_takes_away_what_killed_ones_left(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    Mailbox(folder, RUN)
    Mailbox(folder, replace(OTHER, process=replace(OTHER.process, started=OTHER.process.started - 1000)))
    forget_dead(folder)
    assert [path.name for path in folder.iterdir()] == [f"{RUN.run_id}.held.json"]
    forget_dead(tmp_path / "none")
