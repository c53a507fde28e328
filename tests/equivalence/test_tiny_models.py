"""Any split of a tiny model gives the bits of any other, and the tokens of one process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import TOKENS, write_tiny_gguf
from ppsmoke.worker_protocol import Sampling
from tests.equivalence.chain import Case, Outcome, run_chain, run_reference, varied_prompts
from tests.equivalence.numpy_model import logits_after
from tests.equivalence.one_process import ask

BLOCKS = 8
NEAR_TIE = 0.01
PROMPTS = varied_prompts(len(TOKENS))
WHOLE = [Case(prompt) for prompt in PROMPTS.values()]
CHUNKED = [Case(prompt, (1, 2, 31)) for prompt in PROMPTS.values()] + [Case(PROMPTS["over an attention step"], (100,))]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", blocks=BLOCKS))


@pytest.fixture(scope="module")
def one_process(tiny_model: str) -> list[list[int]]:
    return [answer["tokens"] for answer in ask("ours", tiny_model, [case.prompt for case in WHOLE])]


@pytest.fixture(scope="module")
def chains(tiny_model: str) -> Callable[[int], list[Outcome]]:
    """The outcomes of WHOLE, then of CHUNKED, by number of stages; each chain runs once."""
    return functools.cache(lambda num_stages: run_chain(tiny_model, num_stages, BLOCKS, [*WHOLE, *CHUNKED]))


@pytest.mark.parametrize("num_stages", [2, 3, 4, 5])
def test_any_number_of_stages_and_any_cut_of_the_prompt_gives_the_tokens_of_one_process(
    chains: Callable[[int], list[Outcome]], one_process: list[list[int]], num_stages: int
) -> None:
    outcomes = chains(num_stages)
    whole, chunked = outcomes[: len(WHOLE)], outcomes[len(WHOLE) :]
    assert [outcome.tokens for outcome in whole] == one_process
    assert [outcome.tokens for outcome in chunked] == [*one_process, one_process[-1]]
    for ours, cut in zip([*whole, whole[-1]], chunked, strict=True):
        assert ours.rows == cut.rows, "the same text, but not the same bits"
    assert len({tuple(tokens) for tokens in one_process}) == len(PROMPTS), "a model that says the same to everything"


def test_the_bits_at_a_block_boundary_do_not_depend_on_the_number_of_stages(
    chains: Callable[[int], list[Outcome]],
) -> None:
    for two, four, five in zip(chains(2), chains(4), chains(5), strict=True):
        assert two.rows[4] == four.rows[4] == five.rows[4]
        assert four.rows[2] == five.rows[2]


def test_sampling_gives_the_same_text_at_any_number_of_stages(tiny_model: str) -> None:
    sampled = [Case(PROMPTS["short"], (2,), Sampling(1.2, 0.95, seed), 32) for seed in (1, 2**62)]
    reference = run_reference(tiny_model, sampled)
    assert reference[0] != reference[1]
    for num_stages in (2, 3):
        assert [outcome.tokens for outcome in run_chain(tiny_model, num_stages, BLOCKS, sampled)] == reference


ARCHITECTURES = [("llama", "Q8_0"), ("qwen2", "Q8_0"), ("qwen3", "BF16")]
MORE = [(name, kind) for name in ("llama", "qwen2", "qwen3") for kind in ("Q4_0", "Q4_1", "F16", "F32", "Q4_K", "Q6_K")]


# tinygrad's Transformer is itself not exact: on qwen2 F16 and Q4_K here it takes the second of two logits 0.002 apart,
# so where we part the float64 definition judges. Weights kept as f16 fail this on llama Q8_0 (0.001 apart).
@pytest.mark.parametrize(
    ("architecture", "kind"), [*ARCHITECTURES, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE)]
)
def test_our_blocks_say_what_tinygrads_own_transformer_says(architecture: str, kind: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(
        tmp_path / "m.gguf", architecture=architecture, tensor_type=GGMLQuantizationType[kind], blocks=3, seed=5
    )
    prompts = [PROMPTS[name] for name in ("one token", "short", "repeated")]
    ours, theirs = (ask(source, str(path), prompts, 24) for source in ("ours", "tinygrad"))
    for prompt, our, their in zip(prompts, ours, theirs, strict=True):
        _check_parting(path, prompt, our["tokens"], their["tokens"])


def _check_parting(path: Path, prompt: tuple[int, ...], ours: list[int], theirs: list[int]) -> None:
    """Equal, or they part where two tokens are almost equally likely and ours is the one of the definition."""
    parting = next((index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
    if parting is None:
        return
    exact = logits_after(path, [*prompt, *ours[:parting]])
    assert int(np.argmax(exact)) == ours[parting]
    assert exact[ours[parting]] - exact[theirs[parting]] < NEAR_TIE
