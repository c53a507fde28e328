"""Lines are there at once, secrets are not, and a disk that is full costs one warning."""

from __future__ import annotations

import json
import os
from errno import ENOSPC
from pathlib import Path

import pytest

from ppsmoke.bundle.writer import BundleWriter
from ppsmoke.redaction import HIDDEN, Redactor


class Warnings(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def writer_of(directory: Path, *secrets: str) -> tuple[BundleWriter, Warnings]:
    warnings = Warnings()
    return BundleWriter(directory, Redactor(secrets), warn=warnings), warnings


def test_a_line_is_in_the_file_before_the_writer_is_closed(tmp_path: Path) -> None:
    writer, _ = writer_of(tmp_path)
    writer.append("events.jsonl", [{"at": 1.5}, {"text": "ü\ud800"}])
    writer.append("events.jsonl", [{"at": 2}])
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"at": 1.5}
    assert "ü" in lines[1]
    assert json.loads(lines[2]) == {"at": 2}
    writer.close()


def test_no_secret_gets_into_a_file(tmp_path: Path) -> None:
    writer, _ = writer_of(tmp_path, "hush-hush")
    writer.append("events.jsonl", [{"text": "say hush-hush, VAST_API_KEY=q1w2e3r4"}])
    writer.write_json("run.json", {"text": "hush-hush"})
    writer.write_text("note.txt", "hush-hush\n")
    (tmp_path / "stage-0.log").write_bytes(b"\xff hush-hush\r\nplain\n")
    (tmp_path / "stage-1.log").write_text("plain\n")
    before = (tmp_path / "stage-1.log").stat().st_ino
    writer.clean_files("stage-*.log")
    for path in tmp_path.iterdir():
        text = path.read_bytes()
        assert b"hush" not in text, path
        assert b"q1w2" not in text, path
    assert (tmp_path / "stage-0.log").read_bytes() == b"\xff " + HIDDEN.encode() + b"\r\nplain\n"
    assert (tmp_path / "stage-1.log").stat().st_ino == before, "a file without secrets is not touched"
    writer.close()


@pytest.mark.parametrize("write", ["append", "write_json"])
def test_a_full_disk_is_told_once_and_then_nothing_is_written(
    tmp_path: Path, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, warnings = writer_of(tmp_path)
    if write == "append":
        (tmp_path / "events.jsonl").symlink_to("/dev/full")
        for _ in range(3):
            writer.append("events.jsonl", [{"at": 1}])
    else:

        def full(*_: object) -> None:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr("ppsmoke.durable.os.replace", full)
            writer.write_json("run.json", {})
        for _ in range(2):
            writer.write_json("run.json", {})
        assert list(tmp_path.iterdir()) == [], "nothing half written stays"
    writer.write_text("later.txt", "x")
    writer.clean_files("*")
    assert len(warnings) == 1
    assert "No space left" in warnings[0]
    assert str(tmp_path) in warnings[0]
    assert not (tmp_path / "later.txt").exists()
    writer.close()


def test_a_directory_that_went_away_is_told_once(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    writer, warnings = writer_of(gone)
    writer.append("events.jsonl", [{"at": 1}])
    writer.write_json("run.json", {})
    assert len(warnings) == 1
    writer.close()
