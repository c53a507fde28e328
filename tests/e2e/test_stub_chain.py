"""Whole runs of the real program on the stub worker: any number of stages says what the stub is bound to say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.e2e.kit import SCRIPT, Box, stub_ids, stub_text

MODEL = "stub:layers=8"
PROMPT = "How many stages?"
OTHER_PAIRS = ((2, "orchestrator"), (3, "direct"), (5, "orchestrator"), (8, "direct"))
LONG_PROMPT = "".join(chr(ord("a") + i * i % 23) for i in range(700))  # three parts


@pytest.mark.parametrize(
    ("num_stages", "feedback"),
    [
        *((2, "direct"), (3, "orchestrator"), (5, "direct"), (8, "orchestrator")),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHER_PAIRS),
    ],
)
def test_any_number_of_stages_and_both_feedback_forms_say_the_same(box: Box, num_stages: int, feedback: str) -> None:
    done = box.run(
        *("--seed", "--model", MODEL, "--num-stages", str(num_stages), "--feedback", feedback),
        *("--prompt", PROMPT, "--max-tokens", "40", "--json"),
    )
    said = done.expect(0).json
    assert said["tokens"] == stub_ids(PROMPT, 40, MODEL)
    assert said["text"] == stub_text(PROMPT, 40, MODEL)
    assert said["finish_reason"] == "max_tokens"
    assert said["num_stages"] == num_stages
    assert said["prompt_tokens"] == len(PROMPT)
    assert said["exit_status"] == 0
    assert "error" not in said
    ways = {(edge["source"], edge["target"]): edge["path"] for edge in said["edges"]}
    assert {(None, 0), (num_stages - 1, None)} <= set(ways)
    assert feedback == "orchestrator" or (num_stages - 1, 0) in ways
    assert {(stage, stage + 1) for stage in range(num_stages - 1)} <= set(ways)
    assert set(ways.values()) == {"direct"}
    ranges = [stage["layers"] for stage in said["timings"]["stages"]]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 8
    assert all(before[1] == after[0] for before, after in pairwise(ranges))


@pytest.mark.parametrize("feedback", ["direct", "orchestrator"])
def test_a_prompt_in_parts_is_the_same_prompt(box: Box, feedback: str) -> None:
    done = box.run(
        *("--seed", "--model", MODEL, "--num-stages", "3", "--feedback", feedback),
        *("--prompt", LONG_PROMPT, "--max-tokens", "20"),
    )
    assert done.expect(0).text == stub_text(LONG_PROMPT, 20, MODEL)


@pytest.mark.parametrize("feedback", ["direct", "orchestrator"])
def test_the_end_token_ends_the_text(box: Box, feedback: str) -> None:
    model = MODEL + ",eos_after=7"
    done = box.run("--seed", "--model", model, "--prompt", PROMPT, "--feedback", feedback, "--json")
    said = done.expect(0).json
    assert said["finish_reason"] == "eos"
    assert said["tokens"] == stub_ids(PROMPT, 64, model)
    assert len(said["tokens"]) == 8
    assert said["text"] == stub_text(PROMPT, 7, model)


def test_the_end_token_as_the_first_one(box: Box) -> None:
    """An answer may be empty: nothing but the end token."""
    model = MODEL + ",eos_after=1"
    said = box.run("--seed", "--model", model, "--prompt", PROMPT, "--json", "--max-tokens", "2").expect(0).json
    assert said["finish_reason"] == "eos"
    one = box.run("--seed", "--model", model, "--prompt", PROMPT, "--json", "--max-tokens", "1").expect(0).json
    assert one["finish_reason"] == "max_tokens"
    assert one["tokens"] == said["tokens"][:1]


def test_the_sample_seed_decides_at_any_number_of_stages(box: Box) -> None:
    def run(num_stages: int, seed: int) -> str:
        done = box.run(
            *("--seed", "--model", MODEL, "-n", str(num_stages), "--prompt", PROMPT, "--max-tokens", "24"),
            *("--temperature", "0.8", "--sample-seed", str(seed)),
        )
        return done.expect(0).text

    assert run(2, 5) == stub_text(PROMPT, 24, MODEL, seed=5)
    assert run(3, 6) == stub_text(PROMPT, 24, MODEL, seed=6) != stub_text(PROMPT, 24, MODEL, seed=5)


def test_verify_compares_with_one_process(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "-n", "3", "--prompt", LONG_PROMPT, "--verify", "--json").expect(0)
    assert done.json["verify"] == {
        "equal": True,
        "first_difference": None,
        "reference_tokens": stub_ids(LONG_PROMPT, 64, MODEL),
    }
    assert "verified: all 64 tokens equal those of one process" in done.err


def test_a_context_filled_to_its_last_position(box: Box) -> None:
    """The last token needs no position; fewer tokens than asked for are announced."""
    done = box.run(
        *("--seed", "--model", MODEL, "--prompt", PROMPT, "--context", "32", "--max-tokens", "64"),
        *("--verify", "--json"),
    )
    said = done.expect(0).json
    assert said["tokens"] == stub_ids(PROMPT, 32 - len(PROMPT) + 1, MODEL)
    assert said["finish_reason"] == "max_tokens"
    assert said["verify"]["equal"]
    assert "only 17 tokens fit" in done.err


def test_a_prompt_as_long_as_the_context_gets_one_token(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "--prompt", PROMPT, "--context", str(len(PROMPT)))
    assert done.expect(0).text == stub_text(PROMPT, 1, MODEL)


def test_the_installed_script_runs_the_chain(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "--prompt", PROMPT, program=(SCRIPT,))
    assert done.expect(0).text == stub_text(PROMPT, 64, MODEL)
