"""The script for a GPU machine, tried where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fixtures.tiny_gguf import write_tiny_gguf

COMMAND = (sys.executable, "-m", "bench.gpu_check")
DEADLINE_S = 240.0


def run(*options: str, request: object = None) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*COMMAND, *options],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_the_device_agrees_and_is_measured() -> None:
    status, report = run("--device", "CPU", "--tiny")
    assert (status, report["equal"], report["error"]) == (0, True, None)
    assert (report["device"], report["engine"], report["model"]) == ("CPU", "plain", "tiny")
    assert report["compared"] > 30
    assert report["decode_ms"]["p50"] > 0
    assert set(report["prefill_tok_s"]) == {"32", "512"}


def test_tokens_that_differ_are_named(tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path / "m.gguf", blocks=2))
    _, reference = run("--part", "reference", "--device", "CPU", request={"model": model})
    expected = reference["tokens"]
    expected[1][-1] += 1
    expected[2][-1] += 1
    _, found = run("--part", "device", "--device", "CPU", request={"model": model, "expected": expected})
    assert not found["equal"]
    assert {(each["prompt"], each["step"]) for each in found["differences"]} <= {(1, 23), (2, 23)}


def test_what_cannot_be_computed_is_said() -> None:
    status, report = run("--device", "CPU", "--model", "/no/such.gguf")
    assert status == 3
    assert "no model file" in report["error"]
