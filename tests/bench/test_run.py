"""The whole bench, small, on the stub: its JSON and its tables, and what becomes of a run that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "bench",
        "--stages",
        "1,2",
        "--threads",
        "1",
        "--chain-threads",
        "0",
        "--rounds",
        "1",
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)


def test_a_small_run_gives_one_object_and_tables(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    parts = ("--parts", "decode,prefill,memory")
    done = bench("--model", "stub:layers=4", "--prompts", "32", "--tokens", "9", *parts, "--json", str(out))
    assert done.stdout == ""
    report: dict[str, Any] = json.loads(out.read_text())
    assert report["failures"] == []
    by_case = {(row["who"], row["what"], row["stages"]): row["figures"] for row in report["summary"]}
    assert by_case["worker", "decode", 1]["tokens"]["median"] == 9
    assert by_case["chain", "decode", 2]["decode_tok_s"]["median"] > 0
    assert by_case["chain", "prefill 32", 2]["prefill_tok_s"]["median"] > 0
    assert by_case["chain", "memory", 2]["node_mb"]["median"] > 1
    assert len(report["machine"]["load_before"]) == 3
    assert len(report["goals"]) == 12
    for heading in ("Speed", "Memory", "Goals"):
        assert f"\n{heading}\n" in done.stderr


def test_a_run_that_fails_is_named_and_the_rest_is_measured() -> None:
    done = bench("--model", "stub:layers=4,at_stage=1,fail_at=3", "--tokens", "9", "--parts", "decode")
    report = json.loads(done.stdout)
    assert [failure["case"] for failure in report["failures"]] == ["chain decode N=2"]
    assert "status 1" in report["failures"][0]["error"]
    assert "failed: chain decode N=2, round 0: " in done.stderr
    assert [row["figures"] for row in report["summary"] if row["who"] == "chain"] == [{}]
    assert [row for row in report["summary"] if row["who"] == "worker" and row["figures"]]


def test_a_bench_that_is_ended_leaves_nothing_of_what_it_began(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--model", "stub:layers=4,step_ms=500", "--stages", "2", "--rounds", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment) as process:
        bench = psutil.Process(process.pid)
        ends = time.monotonic() + 60
        while len(began := bench.children(recursive=True)) < 3:  # a run and its two nodes
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.01)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert "SIGTERM" in said
    _, alive = psutil.wait_procs(began, timeout=20)
    assert alive == []
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == []
