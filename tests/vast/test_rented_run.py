"""Rented runs with real nodes: the emulator's machines run the start script and `pp-gpu-node` as they were sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from tests.transport.relay import relay
from tests.vast.rented import STUB, rent_and_run, stub_options


@pytest.mark.parametrize("stages", [2, 3])
def test_rented_machines_serve_a_prompt_and_are_gone_afterwards(stages: int, tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, stages))
    assert done.result.error is None, done.told()
    assert done.result.tokens == stub_tokens(stub_encode("hello"), 8, parse_stub_model(STUB))
    assert done.left == []
    assert done.billed_after == 0
    logs = sorted((tmp_path / "logs").glob("instance-*.log"))
    assert len(logs) == stages
    assert all("pp-smoke-run: starting stage" in log.read_text() for log in logs)
    rental = json.loads((tmp_path / "logs" / "rental.json").read_text())
    assert [one["state"] for one in rental["instances"]] == ["gone"] * stages
    assert [create["env"]["STAGE"] for create in done.creates] == [str(stage) for stage in range(stages)]


def test_far_machines_are_told_the_relay_and_publish_it(tmp_path: Path) -> None:
    with relay() as made:
        done = rent_and_run(tmp_path, stub_options(tmp_path, 2), loopback_only=False, relay_urls=(made.url,))
        assert done.result.error is None, done.told()
        assert done.left == []
        assert {create["env"]["SEED_RELAY"] for create in done.creates} == {made.url}
        assert {create["env"]["PP_FAR"] for create in done.creates} == {"1"}
        assert len(made.came) == 3  # the orchestrator and both nodes


@pytest.mark.slow
def test_a_relay_that_does_not_answer_ends_the_run_before_anything_is_rented(tmp_path: Path) -> None:
    options = stub_options(tmp_path, 2)
    done = rent_and_run(tmp_path, options, loopback_only=False, relay_urls=("http://127.0.0.1:9",))
    assert done.result.error is not None
    assert "no relay was reached" in str(done.result.error)
    assert done.creates == []
