"""A run's directory is made empty and kept as long as it may be needed; then it goes."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ppsmoke.bundle.folder as folder_module
from ppsmoke.bundle.folder import KEPT_RUNS, KEPT_S, RunFolder, check_chosen, open_folder, run_folders
from ppsmoke.errors import EnvironmentFault, UsageError


def make(run_id: str, chosen: Path | None, environ: dict[str, str]) -> Path:
    folder = open_folder(run_id, chosen, environ)
    folder.close()
    return folder.path


def old_runs(runs: Path, age_s: float) -> list[Path]:
    """More than are kept, the first the oldest."""
    made = []
    for index in range(KEPT_RUNS + 5):
        old = runs / f"{index:032x}"
        old.mkdir(parents=True)
        (old / "stage-0.log").write_text("x")
        at = time.time() - age_s + index
        os.utime(old, (at, at))
        made.append(old)
    return made


def test_the_default_place_is_under_the_state_home(tmp_path: Path) -> None:
    path = make("ab" * 16, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert path == tmp_path / "pp-smoke-run" / "runs" / ("ab" * 16)
    assert path.stat().st_mode & 0o777 == 0o700


def test_old_runs_go_and_other_things_stay(tmp_path: Path) -> None:
    runs = tmp_path / "pp-smoke-run" / "runs"
    old = old_runs(runs, KEPT_S + 3600)
    (runs / "notes").mkdir()
    newest = make("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    left = {path.name for path in runs.iterdir()}
    assert left == {path.name for path in old[6:]} | {newest.name, "notes"}
    assert len(left) == KEPT_RUNS + 1


def test_young_runs_stay_however_many_they_are(tmp_path: Path) -> None:
    old = old_runs(tmp_path / "pp-smoke-run" / "runs", KEPT_S - 3600)
    make("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert all(path.exists() for path in old)


def test_the_directory_of_a_run_that_lives_stays(tmp_path: Path) -> None:
    old = old_runs(tmp_path / "pp-smoke-run" / "runs", KEPT_S + 3600)
    living = RunFolder(old[0])
    at = time.time() - KEPT_S - 7200
    os.utime(old[0], (at, at))
    make("e" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert old[0].exists()
    assert not old[1].exists()
    living.close()
    make("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert not old[0].exists()


def test_runs_among_the_temporary_files_are_kept_and_found_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for folder in old_runs(temporary, KEPT_S + 3600):
        folder.rename(temporary / f"pp-smoke-run-{folder.name}")
    (temporary / "pp-smoke-run-notes").mkdir()
    (temporary / f"pp-smoke-run-{'a' * 32}").symlink_to(home)

    def refused(path: Path, *, otherwise: str = "") -> RunFolder:
        if path.is_relative_to(home):
            raise PermissionError(errno.EACCES, "Permission denied")
        path.mkdir()
        return RunFolder(path, otherwise=otherwise)

    monkeypatch.setattr("ppsmoke.bundle.folder._made", refused)
    folder = open_folder("f" * 32, None, {"XDG_STATE_HOME": str(home)})
    folder.close()
    assert folder.path == temporary / f"pp-smoke-run-{'f' * 32}"
    assert "cannot be made: Permission denied" in folder.otherwise
    found = run_folders({"XDG_STATE_HOME": str(home)})
    assert len(found) == KEPT_RUNS
    assert folder.path in found
    assert (temporary / "pp-smoke-run-notes").exists()


def test_two_runs_that_prune_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = old_runs(tmp_path / "pp-smoke-run" / "runs", KEPT_S + 3600)
    found = Path.iterdir

    def and_then_one_is_gone(folder: Path) -> Iterator[Path]:
        for path in found(folder):
            yield path
            if path == old[0]:
                shutil.rmtree(path)

    monkeypatch.setattr(Path, "iterdir", and_then_one_is_gone)
    made = make("f" * 32, None, {"XDG_STATE_HOME": str(tmp_path)})
    assert not old[0].exists()
    assert made.is_dir()


def test_a_chosen_directory_may_be_new_or_empty(tmp_path: Path) -> None:
    for chosen in (tmp_path / "some" / "new", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert make("ab" * 16, chosen, {}) == chosen
        assert list(chosen.iterdir()) == []


def test_a_chosen_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("of another run")
    for refuse in (check_chosen, lambda path: open_folder("ab" * 16, path, {})):
        with pytest.raises(UsageError, match="is not empty") as caught:
            refuse(tmp_path)
        assert "--log-dir" in (caught.value.remedy or "")
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def test_of_two_runs_with_one_chosen_directory_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_folder("ab" * 16, tmp_path, {})
    with pytest.raises(UsageError, match="is that of another run"):  # though nothing is in it yet
        open_folder("cd" * 16, tmp_path, {})
    # The first came to its end between the second's look and its grip.
    look, looks = folder_module.check_chosen, iter([lambda _path: None])
    monkeypatch.setattr(folder_module, "check_chosen", lambda path: next(looks, look)(path))
    (tmp_path / "run.json").write_text("{}")
    first.close()
    with pytest.raises(UsageError, match="is not empty"):
        open_folder("cd" * 16, tmp_path, {})


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for chosen in (tmp_path / "file" / "logs", tmp_path / "file"):
        with pytest.raises(EnvironmentFault, match="cannot be made") as caught:
            open_folder("ab" * 16, chosen, {})
        assert "--log-dir" in (caught.value.remedy or "")
