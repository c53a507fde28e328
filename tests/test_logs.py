"""Log directories are made, the oldest go, and the last lines of a log can be had cheaply."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault
from ppsmoke.logs import KEPT_RUNS, log_tail, make_log_dir


def test_the_default_place_is_under_the_state_home(tmp_path: Path) -> None:
    path = make_log_dir("ab" * 16, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert path == tmp_path / "pp-smoke-run" / "runs" / ("ab" * 16)
    assert path.is_dir()


def test_old_runs_go_and_other_things_stay(tmp_path: Path) -> None:
    runs = tmp_path / "pp-smoke-run" / "runs"
    for index in range(KEPT_RUNS + 5):
        old = runs / f"{index:032x}"
        old.mkdir(parents=True)
        (old / "stage-0.log").write_text("x")
        os.utime(old, (index + 1, index + 1))
    (runs / "notes").mkdir()
    newest = make_log_dir("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    left = sorted(path.name for path in runs.iterdir() if path.name != "notes")
    assert len(left) == KEPT_RUNS
    assert newest.name in left
    assert f"{0:032x}" not in left
    assert f"{KEPT_RUNS + 4:032x}" in left
    assert (runs / "notes").is_dir()


def test_two_runs_that_prune_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "pp-smoke-run" / "runs"
    for index in range(KEPT_RUNS + 5):
        (runs / f"{index:032x}").mkdir(parents=True)
    found = Path.iterdir

    def and_then_one_is_gone(folder: Path) -> Iterator[Path]:
        for path in found(folder):
            yield path
            if path.name == f"{0:032x}":
                path.rmdir()

    monkeypatch.setattr(Path, "iterdir", and_then_one_is_gone)
    make_log_dir("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert not (runs / f"{0:032x}").exists()
    assert (runs / ("f" * 32)).is_dir()


def test_a_chosen_directory_is_used_and_nothing_in_it_goes(tmp_path: Path) -> None:
    for index in range(KEPT_RUNS + 5):
        (tmp_path / f"{index:032x}").mkdir()
    assert make_log_dir("ab" * 16, tmp_path, {}) == tmp_path
    assert len(list(tmp_path.iterdir())) == KEPT_RUNS + 5


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be made") as caught:
        make_log_dir("ab" * 16, tmp_path / "file" / "logs", {})
    assert "--log-dir" in (caught.value.remedy or "")


def test_the_tail_is_the_last_lines_that_say_something(tmp_path: Path) -> None:
    path = tmp_path / "stage-0.log"
    path.write_text("".join(f"line {index}\n\n" for index in range(5000)) + "the end without a newline")
    assert log_tail(path, 3) == ["line 4998", "line 4999", "the end without a newline"]


def test_a_log_that_is_not_there_has_no_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none.log") == []


def test_a_log_that_is_no_text_has_a_tail_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "stage-0.log"
    path.write_bytes(b"\xff\xfe broken\nlast\n")
    assert log_tail(path)[-1] == "last"
