from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ppsmoke.stub_model import parse_stub_model, stub_tokens


def ask(request: object) -> tuple[int, list[dict[str, Any]]]:
    text = request if isinstance(request, str) else json.dumps(request)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ppsmoke_worker.reference"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_stub_says_its_text_token_by_token_and_why_it_ended() -> None:
    model = "stub:eos_after=5"
    request = {"model": model, "context": 64, "tokens": [1, 2], "max_tokens": 20, "stop_token_ids": [0]}
    status, lines = ask(request)
    expected = stub_tokens([1, 2], 20, parse_stub_model(model))
    assert (status, lines[-1]) == (0, {"tokens": expected, "finish_reason": "eos"})
    assert lines[0]["status"] == "ready"
    assert [line["token"] for line in lines[1:-1]] == expected
    assert ask({**request, "max_tokens": 3})[1][-1] == {"tokens": expected[:3], "finish_reason": "max_tokens"}
    assert ask({**request, "context": 4})[1][-1] == {"tokens": expected[:3], "finish_reason": "context"}


def test_a_real_model_goes_on_until_the_end_of_its_context(tiny_model: Path) -> None:
    request = {"model": str(tiny_model), "context": 40, "device": "CPU", "tokens": [9] * 33, "max_tokens": 20}
    status, lines = ask(request)
    assert (status, lines[-1]["finish_reason"], len(lines[-1]["tokens"])) == (0, "context", 8)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ("{", "malformed_request"),
        ([], "malformed_request"),
        ({"model": "stub:", "context": 8, "tokens": [], "max_tokens": 1}, "malformed_request"),
        ({"model": "stub:", "context": 2, "tokens": [1, 2, 3], "max_tokens": 1}, "context_exceeded"),
        ({"model": "stub:", "context": 8, "tokens": [999], "max_tokens": 1}, "bad_payload"),
        ({"model": "stub:fail_at=1", "context": 8, "tokens": [9], "max_tokens": 3}, "worker_failed"),
        ({"model": "/no/such.gguf", "context": 8, "tokens": [9], "max_tokens": 3}, "model_not_found"),
    ],
)
def test_an_error_is_one_fatal_line(request_: object, code: str) -> None:
    status, lines = ask(request_)
    assert status != 0
    assert (lines[-1]["status"], lines[-1]["code"]) == ("fatal", code)
