"""The engine's logits against the definition of the models in float64, for what no other reference here covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import TOKENS, write_tiny_gguf
from tests.equivalence.cases import varied_prompts
from tests.equivalence.numpy_model import logits_after
from tests.equivalence.one_process import OneProcess

PROMPTS = varied_prompts(len(TOKENS))
TOLERANCE = 2e-3  # of logits of some 10


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
def test_logits_are_those_of_the_definition(recipe: dict[str, Any], tmp_path: Path, one_process: OneProcess) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType.Q8_0, blocks=3, **recipe)
    prompts = [PROMPTS[name] for name in ("one token", "repeated", "over an attention step")]
    for prompt, logits in zip(prompts, one_process.logits(str(path), prompts), strict=True):
        expected = logits_after(path, prompt)
        assert np.abs(logits - expected).max() < TOLERANCE
        assert np.std(expected) > 1
