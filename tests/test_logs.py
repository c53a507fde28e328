"""The last lines of a log can be had cheaply."""

from __future__ import annotations

from pathlib import Path

from ppsmoke.logs import log_tail


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
