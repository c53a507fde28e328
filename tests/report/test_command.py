"""`pp-smoke-run report`, as a user types it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault, UsageError
from ppsmoke.report_command import report_command
from tests.cli.kit import environment, run_cli
from tests.report.recipe import Recipe, make


def test_the_page_the_browser_page_and_the_trace(tmp_path: Path) -> None:
    bundle = make(Recipe(compute={2: 0.006})).write(tmp_path / "a bundle")
    html, trace = tmp_path / "out.html", tmp_path / "trace.json"
    done = run_cli(environment(tmp_path), "report", str(bundle), "--html", str(html), "--trace", str(trace))
    assert (done.returncode, done.stderr) == (0, f"wrote {html}\nwrote {trace}\n")
    assert "Stage 2 computes 39 % of a token's time" in done.stdout
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert json.loads(trace.read_text())["traceEvents"]


def test_the_browser_page_alone_leaves_the_trace_in_the_runs_directory(tmp_path: Path) -> None:
    bundle = make(Recipe()).write(tmp_path / "bundle")
    before = {path.name for path in bundle.iterdir()}
    assert report_command(bundle, as_json=True, html=None, trace=tmp_path / "elsewhere.json") == 0
    assert {path.name for path in bundle.iterdir()} == before
    assert report_command(bundle, as_json=True, html=tmp_path / "out.html", trace=None) == 0
    assert {path.name for path in bundle.iterdir()} == before | {"trace.json"}
    assert (bundle / "trace.json").read_text() == (tmp_path / "elsewhere.json").read_text()
    assert "traceEvents" in json.loads((bundle / "trace.json").read_text())


def test_a_runs_directory_that_may_not_be_written_to_gets_no_trace_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make(Recipe()).write(tmp_path / "bundle")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert report_command(bundle, as_json=True, html=tmp_path / "out.html", trace=None) == 0
    assert not (bundle / "trace.json").exists()
    said = capsys.readouterr().err
    assert f"no trace.json was written: {bundle} may not be written to; --trace FILE puts it elsewhere" in " ".join(
        said.split()
    )


def test_without_a_directory_it_is_the_newest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="no run has left anything in"):
        report_command(None, as_json=False, html=None, trace=None)
    runs = tmp_path / "pp-smoke-run" / "runs"
    for age, stages in ((300, 2), (100, 3), (200, 4)):
        bundle = make(Recipe(stages=stages)).write(runs / f"{stages:032x}")
        when = time.time() - age
        os.utime(bundle / "environment.json", (when, when))
    assert report_command(None, as_json=False, html=None, trace=None) == 0
    assert "  3 stages  " in capsys.readouterr().out.splitlines()[0]


def test_a_run_may_be_named_by_the_id_that_it_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runs = tmp_path / "pp-smoke-run" / "runs"
    for stages, run_id in ((2, "01234567" * 4), (3, "01234567" + "0" * 24), (4, "89abcdef" * 4)):
        make(Recipe(stages=stages)).write(runs / run_id)
    assert report_command(Path("89abcdef"), as_json=False, html=None, trace=None) == 0
    assert "  4 stages  " in capsys.readouterr().out.splitlines()[0]
    with pytest.raises(UsageError, match="2 runs' ids begin with 01234567: 0123456700"):
        report_command(Path("01234567"), as_json=False, html=None, trace=None)
    with pytest.raises(UsageError, match="no run whose id begins with 76543210 has left a directory in"):
        report_command(Path("76543210"), as_json=False, html=None, trace=None)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    done = run_cli(environment(tmp_path), "report", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing is no run's directory" in done.stderr
    assert "fix: " in done.stderr


def test_the_analysis_as_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = make(Recipe(compute={2: 0.006})).write(tmp_path)
    assert report_command(bundle, as_json=True, html=None, trace=None) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["token_s"] == 0.0152
    assert body["shares"][0] == {
        "place": {"source": 2, "target": 2},
        "mean_s": 0.006,
        "p50_s": 0.006,
        "p99_s": 0.006,
        "share": 0.394737,
        "count": 1.0,
        "parts": None,
    }
    assert [culprit["about"] for culprit in body["culprits"]] == ["start", "prompt", "tokens"]
    assert body["ending"]["how"] == "completed"
    assert len(body["stages"]) == len(body["edges"]) == 4


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    bundle = make(Recipe()).write(tmp_path / "bundle")
    with pytest.raises(EnvironmentFault, match=r"out\.html cannot be written"):
        report_command(bundle, as_json=False, html=tmp_path / "no" / "out.html", trace=None)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("hello")
    with pytest.raises(UsageError):
        report_command(tmp_path, as_json=False, html=None, trace=None)
