"""The figures of a run: rates, gaps, what an edge costs, and the JSON object."""

from __future__ import annotations

import json

import pytest

from ppsmoke.errors import LeftBehind, StageDied, VerifyMismatch
from ppsmoke.orchestrator.result import RunResult, StageTimes, Times
from ppsmoke.stats import percentile
from ppsmoke.verify import Verification


def times(*tokens_at: float, computing: tuple[float | None, ...] = (), around: float | None = None) -> Times:
    """`around`: a token's way round the chain, as each stage reports it."""
    stages = [StageTimes(index, (index, index + 1)) for index in range(len(computing))]
    for stage, value in zip(stages, computing, strict=True):
        parts = {"inward": 0.0002, "compute": value, "outward": 0.0001, "write": 0.0003}
        named = {f"decode_{name}_p50": seconds for name, seconds in parts.items() if seconds is not None}
        stage.stopped({**named, **({} if around is None else {"decode_round_p50": around})})
    return Times(prompt_at=10.0, tokens_at=list(tokens_at), stages=stages)


def test_rate_counts_the_tokens_after_the_first() -> None:
    measured = times(10.5, 10.6, 10.7, 10.8)
    assert measured.first_token == pytest.approx(0.5)
    assert measured.decode == pytest.approx(0.3)
    assert measured.decode_tok_s() == pytest.approx(10.0)


def test_without_a_second_token_there_is_no_rate() -> None:
    assert times(10.5).decode_tok_s() is None
    assert times().first_token is None


def test_hop_is_what_computing_does_not_explain_shared_over_the_edges() -> None:
    assert times(computing=(0.02, 0.02), around=0.05).hop() == pytest.approx(0.005)
    assert times(computing=(0.03, 0.03), around=0.05).hop() == 0
    assert times(computing=(0.02, None), around=0.05).hop() is None
    assert times(computing=(0.02, 0.02)).hop() is None
    assert times().hop() is None


def test_the_parts_of_a_hop_add_up_to_it_and_the_wire_is_what_no_stage_sees() -> None:
    measured = times(computing=(0.02, 0.02), around=0.05)
    parts = measured.hop_parts()
    assert parts is not None
    assert list(parts) == ["outward", "write", "wire", "inward"]
    assert parts["wire"] == pytest.approx(0.005 - 0.0006)
    assert sum(parts.values()) == pytest.approx(0.005)
    body = measured.as_json()
    assert (body["hop_s"], body["hop_parts"]["write_s"]) == (0.005, 0.0003)
    assert body["stages"][0]["compute_p50_s"] == 0.02
    assert times().hop_parts() is None


def test_percentiles_are_nearest_rank() -> None:
    values = [float(v) for v in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([3.0], 99) == 3.0


def test_the_json_object_of_a_run_that_failed_early_is_whole() -> None:
    result = RunResult("ab" * 16, "tiny", 3, 12)
    result.error = StageDied("stage 1's node was killed by SIGKILL", stage=1, phase="Running")
    body = json.loads(json.dumps(result.as_json()))
    assert body["exit_status"] == 1
    assert body["error"] == {
        "code": "stage_died",
        "stage": 1,
        "phase": "Running",
        "message": "stage 1's node was killed by SIGKILL",
        "remedy": StageDied.default_remedy,
    }
    assert body["tokens"] == []
    assert body["finish_reason"] is None
    assert body["ttft_s"] is None


def test_what_was_left_behind_is_in_the_object_beside_another_error() -> None:
    result = RunResult("ab" * 16, "tiny", 3, 12)
    result.error = StageDied("stage 1's node was killed by SIGKILL", stage=1)
    result.left_behind = LeftBehind("process of stage 1 did not end")
    body = result.as_json()
    assert body["error"]["code"] == "stage_died"
    assert body["left_behind"] == "process of stage 1 did not end"


@pytest.mark.parametrize(
    ("ours", "reference", "at"),
    [((1, 2, 3), (1, 2, 3), None), ((1, 2, 3), (1, 5, 3), 1), ((1, 2), (1, 2, 3), 2), ((1, 2, 3), (1, 2), 2)],
)
def test_verification_says_where_the_tokens_part(
    ours: tuple[int, ...], reference: tuple[int, ...], at: int | None
) -> None:
    verification = Verification(ours, reference)
    assert verification.first_difference == at
    assert verification.equal == (at is None)
    if at is not None:
        assert f"part at token {at}" in verification.describe()


def test_a_mismatch_fails_the_run() -> None:
    assert VerifyMismatch("they part").exit_status == 1
