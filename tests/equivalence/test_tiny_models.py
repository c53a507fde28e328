"""Any split of a tiny model gives the bits of any other, and the tokens of one process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import TOKENS, write_tiny_gguf
from ppsmoke.worker_protocol import Sampling
from tests.equivalence.cases import Case, varied_prompts
from tests.equivalence.chain import Outcome, WorkerPool
from tests.equivalence.near_tie import check_same_but_for_ties
from tests.equivalence.one_process import OneProcess

PROMPTS = varied_prompts(len(TOKENS))
WHOLE = [Case(prompt) for prompt in PROMPTS.values()]
CHUNKED = [Case(prompt, (1, 2, 31)) for prompt in PROMPTS.values()] + [Case(PROMPTS["over an attention step"], (100,))]
SAMPLED = [Case(PROMPTS["short"], (2,), Sampling(1.2, 0.95, seed), 32) for seed in (1, 2**62)]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", blocks=8))


@pytest.fixture(scope="module")
def chains(tiny_model: str, workers: WorkerPool) -> Callable[[int], list[Outcome]]:
    """The outcomes of WHOLE, then of CHUNKED, then of SAMPLED, by number of stages; each chain runs once."""
    return functools.cache(lambda num_stages: workers.run_chain(tiny_model, num_stages, [*WHOLE, *CHUNKED, *SAMPLED]))


@pytest.fixture(scope="module")
def whole_model_tokens(tiny_model: str, one_process: OneProcess) -> list[list[int]]:
    """Of WHOLE, then of SAMPLED."""
    return one_process.tokens(tiny_model, [*WHOLE, *SAMPLED])


@pytest.mark.parametrize("num_stages", [2, 3, 4, 5])
def test_any_number_of_stages_and_any_cut_of_the_prompt_gives_the_tokens_of_one_process(
    chains: Callable[[int], list[Outcome]], whole_model_tokens: list[list[int]], num_stages: int
) -> None:
    outcomes, expected = chains(num_stages), whole_model_tokens[: len(WHOLE)]
    whole, chunked = outcomes[: len(WHOLE)], outcomes[len(WHOLE) : -len(SAMPLED)]
    assert [outcome.tokens for outcome in whole] == expected
    assert [outcome.tokens for outcome in chunked] == [*expected, expected[-1]]
    for one, other in zip([*whole, whole[-1]], chunked, strict=True):
        assert one.rows == other.rows, "the same text, but not the same bits"
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS), "a model that says the same to everything"


@pytest.mark.slow
def test_any_cut_and_any_split_gives_the_tokens_of_one_process_in_the_engine_of_other_devices(
    tiny_model: str, plain_process: OneProcess
) -> None:
    expected = plain_process.tokens(tiny_model, [*WHOLE, *CHUNKED, *SAMPLED])
    with WorkerPool({"PP_WORKER_ENGINE": "plain"}) as workers:
        outcomes = workers.run_chain(tiny_model, 3, [*WHOLE, *CHUNKED, *SAMPLED])
    assert [outcome.tokens for outcome in outcomes] == expected
    for one, other in zip([*outcomes[: len(WHOLE)], outcomes[len(WHOLE) - 1]], outcomes[len(WHOLE) :], strict=False):
        assert one.rows == other.rows, "the same text, but not the same bits"


def test_the_bits_at_a_block_boundary_do_not_depend_on_the_number_of_stages(
    chains: Callable[[int], list[Outcome]],
) -> None:
    for two, four, five in zip(chains(2), chains(4), chains(5), strict=True):
        assert two.rows[4] == four.rows[4] == five.rows[4]
        assert four.rows[2] == five.rows[2]


@pytest.mark.parametrize("num_stages", [2, 3])
def test_sampling_gives_the_text_of_one_process(
    chains: Callable[[int], list[Outcome]], whole_model_tokens: list[list[int]], num_stages: int
) -> None:
    expected = whole_model_tokens[-len(SAMPLED) :]
    assert [outcome.tokens for outcome in chains(num_stages)[-len(SAMPLED) :]] == expected
    greedy = whole_model_tokens[list(PROMPTS).index("short")][:32]
    assert len({tuple(tokens) for tokens in (*expected, greedy)}) == 3, "the seed or the temperature does nothing"


# No BF16: Debian's clang 14 does not compile what tinygrad writes for it.
ARCHITECTURES = [("llama", "Q8_0"), ("qwen2", "Q8_0"), ("qwen3", "F16")]
MORE = [(name, kind) for name in ("llama", "qwen2", "qwen3") for kind in ("Q4_0", "Q4_1", "F16", "F32", "Q4_K", "Q6_K")]
MORE.remove(("qwen3", "F16"))


# tinygrad's Transformer is itself not exact: on qwen2 F16 and Q4_K here it takes the second of two logits 0.002 apart,
# so where we part the float64 definition judges. Weights kept as f16 fail this on llama Q8_0 (0.001 apart).
@pytest.mark.parametrize(
    ("architecture", "kind"), [*ARCHITECTURES, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE)]
)
def test_our_blocks_say_what_tinygrads_own_transformer_says(
    architecture: str, kind: str, tmp_path: Path, one_process: OneProcess, tinygrads_own: OneProcess
) -> None:
    path = write_tiny_gguf(
        tmp_path / "m.gguf", architecture=architecture, tensor_type=GGMLQuantizationType[kind], blocks=3, seed=5
    )
    cases = [Case(PROMPTS[name], count=24) for name in ("one token", "short", "repeated")]
    ours, theirs = (process.tokens(str(path), cases) for process in (one_process, tinygrads_own))
    for case, our, their in zip(cases, ours, theirs, strict=True):
        check_same_but_for_ties(str(path), case.prompt, our, their)
