"""The last lines of a log can be had cheaply."""

from __future__ import annotations

from pathlib import Path

from ppsmoke.logs import log_tail, without_tracebacks


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


LOG = """\
01:26:20.233 linked with stage 0
01:26:20.260 unexpected failure
Traceback (most recent call last):
  File "/x/guarded_tasks.py", line 39, in _guarded
    await work
RuntimeError: can't start new thread
01:26:20.321 Preparing -> Faulted
01:26:21.100 worker: Traceback (most recent call last):
01:26:21.100 worker:   File "/x/__main__.py", line 15, in <module>
01:26:21.100 worker:     from numpy.typing import NDArray
01:26:21.100 worker: ModuleNotFoundError: No module named 'numpy.typing'
01:26:21.200   an indented line of no traceback
"""


def test_what_a_user_is_shown_has_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "stage-0.log"
    path.write_text(LOG)
    shown = [
        "01:26:20.233 linked with stage 0",
        "01:26:20.260 unexpected failure",
        "RuntimeError: can't start new thread",
        "01:26:20.321 Preparing -> Faulted",
        "01:26:21.100 worker: ModuleNotFoundError: No module named 'numpy.typing'",
        "01:26:21.200   an indented line of no traceback",
    ]
    assert log_tail(path) == shown
    assert log_tail(path, 2) == shown[-2:]


def test_a_traceback_whose_beginning_was_lost_is_one_all_the_same() -> None:
    lines = ["    await work", '  File "/x/y.py", line 1, in main', "    go()", "KeyError: 3"]
    assert without_tracebacks(lines[1:]) == ["KeyError: 3"]
    chained = ["KeyError: 3", "During handling of the above exception, another exception occurred:", *lines[1:]]
    assert without_tracebacks(chained) == ["KeyError: 3", "KeyError: 3"]
