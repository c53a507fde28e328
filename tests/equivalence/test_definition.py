"""The engine's logits against the definition of the models in float64, for what no other reference here covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import TOKENS, can_write, write_tiny_gguf
from ppsmoke.ggml_types import SUPPORTED_TENSOR_TYPES
from tests.equivalence.cases import varied_prompts
from tests.equivalence.numpy_model import logits_after
from tests.equivalence.one_process import OneProcess

PROMPTS = varied_prompts(len(TOKENS))
TOLERANCE = 5e-4  # of logits of some 10; measured: 1e-4, most 2e-5


EVERY_TYPE = [kind.name for kind in SUPPORTED_TENSOR_TYPES]
WRITABLE = [name for name in EVERY_TYPE if can_write(GGMLQuantizationType[name])]
SHAPES = [
    {"hidden": 160, "ffn": 96, "heads": 5, "kv_heads": 1, "head_dim": 32},
    {"hidden": 192, "ffn": 320, "heads": 2, "kv_heads": 2, "head_dim": 80},
    {"hidden": 96, "ffn": 224, "heads": 8, "kv_heads": 1, "head_dim": 96},
    {"hidden": 128, "ffn": 64, "heads": 6, "kv_heads": 2, "head_dim": 128},
]


@pytest.mark.parametrize(
    "recipe",
    [
        {"architecture": "llama", "rope_freqs": True},
        {"architecture": "llama", "overrides": {"llama.rope.dimension_count": 16}},
        {"architecture": "qwen2", "tied": True},
        {"architecture": "qwen3", "overrides": {"qwen3.rope.dimension_count": 32}},
    ],
    ids=lambda recipe: " ".join(str(value) for value in recipe.values()),
)
def test_logits_are_those_of_the_definition(recipe: dict[str, Any], tmp_path: Path, either_process: OneProcess) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType.Q8_0, blocks=3, **recipe)
    _check(path, either_process, ("one token", "repeated", "over an attention step"))


@pytest.mark.parametrize("name", WRITABLE)
def test_logits_are_those_of_the_definition_in_every_tensor_type(
    name: str, tmp_path: Path, one_process: OneProcess
) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType[name], blocks=2)
    _check(path, one_process, ("short", "exactly a pass"))


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: " ".join(str(value) for value in sizes.values()))
def test_logits_are_those_of_the_definition_in_every_shape(
    sizes: dict[str, int], tmp_path: Path, one_process: OneProcess
) -> None:
    architecture = "qwen2" if sizes["heads"] % 2 else "qwen3"
    path = write_tiny_gguf(
        tmp_path / "m.gguf", architecture=architecture, tensor_type=GGMLQuantizationType.Q4_0, blocks=2, sizes=sizes
    )
    _check(path, one_process, ("short", "repeated"))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_logits_are_those_of_the_definition_in_sizes_that_no_quantised_type_has(
    name: str, tmp_path: Path, one_process: OneProcess
) -> None:
    sizes = {"hidden": 100, "ffn": 70, "heads": 5, "kv_heads": 5, "head_dim": 20}
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType[name], blocks=2, sizes=sizes)
    _check(path, one_process, ("short", "repeated"))


def test_logits_are_those_of_the_definition_where_types_are_mixed_in_a_block(
    tmp_path: Path, one_process: OneProcess
) -> None:
    """As in the files named q4_k_m: values and the second matrix of the feed-forward in more bits, in some blocks."""
    kinds = GGMLQuantizationType
    types = {
        "blk.0.attn_v.weight": kinds.Q6_K,
        "blk.0.ffn_down.weight": kinds.Q6_K,
        "blk.1.attn_k.weight": kinds.Q8_0,
        "blk.1.ffn_up.weight": kinds.F16,
        "output.weight": kinds.Q6_K,
        "token_embd.weight": kinds.Q5_K,
    }
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=kinds.Q4_K, blocks=3, types=types)
    _check(path, one_process, ("short", "over an attention step"))


def test_logits_are_those_of_the_definition_far_into_a_long_context(tmp_path: Path, one_process: OneProcess) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType.Q8_0, blocks=2, context_length=2304)
    tokens = [10 + (index * index) % (len(TOKENS) - 10) for index in range(2010)]
    for count in (500, 2000):
        decoded = one_process.steps(str(path), tokens[:count], tokens[count : count + 10], context=2304)
        expected = logits_after(path, tokens[: count + 10])
        below, best = np.sort(expected)[-2:]
        token, ahead = decoded[-1]
        assert abs(ahead - (best - below)) < 2 * TOLERANCE
        assert token == int(np.argmax(expected))


def _check(path: Path, process: OneProcess, names: tuple[str, ...]) -> None:
    prompts = [PROMPTS[name] for name in names]
    for prompt, logits in zip(prompts, process.logits(str(path), prompts), strict=True):
        expected = logits_after(path, prompt)
        assert np.abs(logits - expected).max() < TOLERANCE
        assert np.std(expected) > 1
