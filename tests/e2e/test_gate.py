"""The pre-deploy gate: real binaries, the real model, N = 2, 3, 5; one text, whatever the split."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.e2e.kit import SCRIPT, Box, stub_text

pytestmark = pytest.mark.gate

PROMPT = "Say hello"
TOKENS = 24
PATIENCE_S = 300.0
STAGE_TIMES = (
    *("load_s", "compile_s", "ready_s", "prefill_s", "decode_p50_s", "decode_p99_s"),
    *("inward_p50_s", "compute_p50_s", "outward_p50_s", "write_p50_s"),
)
HOP_PARTS = ("outward_s", "write_s", "wire_s", "inward_s")
RUN_TIMES = (
    *("model_s", "spawn_s", "join_s", "ready_s", "prefill_s", "decode_s", "teardown_s", "total_s"),
    *("decode_p50_s", "decode_p99_s", "hop_s"),
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """What a run says, by (stages, feedback); each is run once."""

    @cache
    def run(num_stages: int, feedback: str, *more: str) -> dict[str, Any]:
        box = Box(tmp_path_factory.mktemp("gate"))
        done = box.run(
            *("--seed", "--num-stages", str(num_stages), "--feedback", feedback, "--prompt", PROMPT),
            *("--max-tokens", str(TOKENS), "--json", *more),
            program=(SCRIPT,),
            deadline_s=PATIENCE_S,
        )
        box.close()
        return done.expect(0).json

    return run


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("num_stages", "feedback", "more"),
    [(2, "direct", ()), (3, "direct", ("--verify",)), (3, "orchestrator", ()), (5, "direct", ())],
    ids=["2 stages", "3 stages verified", "3 stages, orchestrator feedback", "5 stages"],
)
def test_the_default_model(
    answers: Callable[..., dict[str, Any]], num_stages: int, feedback: str, more: tuple[str, ...]
) -> None:
    said = answers(num_stages, feedback, *more)
    assert said["text"].strip()
    assert said["finish_reason"] in ("eos", "max_tokens")
    assert said["exit_status"] == 0
    assert said["model"] == "smollm2:135m"
    assert said["num_stages"] == num_stages
    assert said["prompt_tokens"] > len(PROMPT.split())
    assert 0 < len(said["tokens"]) <= TOKENS
    if more:
        assert said["verify"] == {"equal": True, "first_difference": None, "reference_tokens": said["tokens"]}
    # The same as through any other split.
    reference = answers(2, "direct")
    assert (said["tokens"], said["text"]) == (reference["tokens"], reference["text"])
    _assert_complete(said, num_stages)


def _assert_complete(said: dict[str, Any], num_stages: int) -> None:
    timings = said["timings"]
    assert set(timings) == {*RUN_TIMES, "hop_parts", "stages"}
    assert set(timings["hop_parts"]) == set(HOP_PARTS)
    assert all(isinstance(part, float) for part in timings["hop_parts"].values())
    for name in RUN_TIMES:
        assert isinstance(timings[name], float), (name, timings)
    assert [stage["stage"] for stage in timings["stages"]] == list(range(num_stages))
    blocks: list[int] = []
    for stage in timings["stages"]:
        assert stage["device"]
        blocks += range(*stage["layers"])
        for name in STAGE_TIMES:
            assert isinstance(stage[name], float), (name, stage)
    assert blocks == list(range(30))
    assert said["decode_tok_s"] > 0
    assert said["ttft_s"] > 0


@pytest.mark.parametrize("num_stages", [2, 3])
def test_the_stub_needs_no_model(box: Box, num_stages: int) -> None:
    model = "stub:layers=5"
    done = box.run("--seed", "-n", str(num_stages), "--model", model, "--prompt", PROMPT, program=(SCRIPT,))
    assert done.expect(0).text == stub_text(PROMPT, 64, model)
