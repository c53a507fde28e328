"""The recipe for random-weight models of a real shape: proper files, the same bytes every time, sane weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from fixtures.shaped_gguf import SHAPES, TYPES, Shape, write_shaped_gguf
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts
from ppsmoke.request import open_model

SMALL = Shape(
    hidden=64, ffn=160, blocks=2, heads=4, kv_heads=2, head_dim=16, vocabulary=1000, rope_base=1e5, context_length=256
)


@pytest.mark.parametrize("block_type", TYPES)
def test_weights_keep_the_spread_of_what_they_multiply(tmp_path: Path, block_type: str) -> None:
    path = write_shaped_gguf(tmp_path / "m.gguf", SMALL, block_type=GGMLQuantizationType[block_type])
    with open_gguf(path) as model:
        facts = read_model_facts(model)
        assert (facts.num_layers, facts.hidden_dim, facts.vocab_size, facts.tied_head) == (2, 64, 1000, True)
        up, embedding = model.dequantize("blk.1.ffn_up.weight"), model.dequantize("token_embd.weight")
        assert model.tensors["blk.1.ffn_up.weight"].type.name == block_type
        assert float(up.std()) == pytest.approx(64**-0.5, rel=0.1)
        assert float(embedding.std()) == pytest.approx(1.0, rel=0.1)
        assert abs(float(up.mean())) < 0.02


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first, again, other = (
        write_shaped_gguf(tmp_path / name, SMALL, seed=seed).read_bytes()
        for name, seed in (("a.gguf", 1), ("b.gguf", 1), ("c.gguf", 2))
    )
    assert first == again
    assert first != other


def test_the_vocabulary_is_as_large_as_the_shape_says_and_usable(tmp_path: Path) -> None:
    path = write_shaped_gguf(tmp_path / "m.gguf", replace(SMALL, vocabulary=2000))
    model = open_model("m", path)
    tokens = model.encode_prompt("the one and the other", raw=True, system=None, now=None)  # type: ignore[arg-type]
    assert tokens
    assert max(tokens) < 2000


def test_the_shapes_are_those_of_their_models() -> None:
    one = SHAPES["llama3.2-1b"]
    assert (one.hidden, one.blocks, one.heads * one.head_dim, one.vocabulary) == (2048, 16, 2048, 128_256)
