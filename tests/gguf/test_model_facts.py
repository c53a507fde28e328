from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from fixtures.tiny_gguf import TOKENS, write_tiny_gguf
from ppsmoke.errors import GgufMalformed, UnsupportedModel
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import ModelFacts, read_model_facts, stage_tensors
from ppsmoke.models import ensure_model, parse_model
from ppsmoke.roles import layer_range


def facts_of(path: Path) -> ModelFacts:
    with open_gguf(path) as gguf:
        return read_model_facts(gguf)


def tiny(tmp_path: Path, **options: Any) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf", blocks=options.pop("blocks", 1), **options)


def test_llama(tmp_path: Path) -> None:
    facts = facts_of(tiny(tmp_path, blocks=3, rope_freqs=True))
    assert facts == ModelFacts(
        architecture="llama", name="tiny llama", num_layers=3, hidden_dim=128, ffn_dim=256, num_heads=4,
        num_kv_heads=2, head_dim=32, rope_dim=32, rope_theta=10000.0, rms_eps=pytest.approx(1e-6),
        vocab_size=len(TOKENS), context_length=512, qkv_bias=False, qk_norm=False, tied_head=False, rope_freqs=True,
    )  # fmt: skip
    assert not facts.rope_neox


def test_qwen(tmp_path: Path) -> None:
    qwen2 = facts_of(tiny(tmp_path, architecture="qwen2", tied=True))
    assert (qwen2.qkv_bias, qwen2.qk_norm, qwen2.tied_head, qwen2.rope_neox) == (True, False, True, True)
    qwen3 = facts_of(tiny(tmp_path, architecture="qwen3"))
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.tied_head) == (False, True, False)
    assert qwen3.num_heads * qwen3.head_dim != qwen3.hidden_dim


def test_defaults_of_keys_that_files_leave_out(tmp_path: Path) -> None:
    left_out = ("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count")
    overrides: dict[str, Any] = {f"llama.{key}": None for key in (*left_out, "rope.freq_base")}
    overrides["llama.attention.head_count_kv"] = 2
    facts = facts_of(tiny(tmp_path, overrides=overrides))
    assert (facts.head_dim, facts.rope_dim, facts.rope_theta) == (32, 32, 10000.0)
    per_block = facts_of(tiny(tmp_path, blocks=2, overrides={"llama.attention.head_count_kv": [2, 2]}))
    assert per_block.num_kv_heads == 2


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_stages_together_read_every_tensor_and_nothing_twice(tmp_path: Path, count: int, tied: bool) -> None:
    with open_gguf(tiny(tmp_path, blocks=8, tied=tied)) as gguf:
        facts = read_model_facts(gguf)
        parts = [stage_tensors(facts, *layer_range(index, count, 8)) for index in range(count)]
        names = [name for part in parts for name in part]
        assert set(names) == set(gguf.tensors)
        twice = {name for name in names if names.count(name) > 1}
        assert twice == ({"token_embd.weight"} if tied and count > 1 else set())


def test_every_stage_reads_the_rope_factors(tmp_path: Path) -> None:
    with open_gguf(tiny(tmp_path, blocks=3, rope_freqs=True)) as gguf:
        facts = read_model_facts(gguf)
        assert all("rope_freqs.weight" in stage_tensors(facts, block, block + 1) for block in range(3))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"general.architecture": "mamba"}, "'mamba'; supported are the dense llama, qwen2, qwen3"),
    "experts": ({"llama.expert_count": 8}, "8 experts"),
    "yarn": ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, "'yarn' with factor 4.0"),
    "linear": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, "'linear' with factor 2.0"),
    "old linear": ({"llama.rope.scale_linear": 2.0}, "'linear'"),
    "window": ({"llama.attention.sliding_window": 128}, "sliding window of 128"),
    "bidirectional": ({"llama.attention.causal": False}, "both directions"),
    "scale": ({"llama.attention.scale": 0.5}, "attention.scale"),
    "value length": ({"llama.attention.value_length": 64}, "another length"),
    "uneven blocks": ({"llama.attention.head_count_kv": [2, 4]}, "blocks of different shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_compute_wrongly_is_refused(tmp_path: Path, case: str) -> None:
    overrides, message = REFUSED[case]
    with pytest.raises(UnsupportedModel, match=message):
        facts_of(tiny(tmp_path, overrides=overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {"llama.rope.scaling.type": "none"},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0},
        {"llama.expert_count": 0},
        {"llama.attention.sliding_window": 512},
    ],
    ids=str,
)
def test_settings_that_change_nothing_are_accepted(tmp_path: Path, overrides: dict[str, Any]) -> None:
    facts_of(tiny(tmp_path, overrides=overrides))


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no architecture": ({"general.architecture": None}, "does not name its architecture"),
    "no blocks": ({"llama.block_count": None}, "llama.block_count is missing"),
    "zero blocks": ({"llama.block_count": 0}, "llama.block_count has the impossible value 0"),
    "text for a number": ({"llama.embedding_length": "big"}, "embedding_length has the impossible value 'big'"),
    "more blocks than tensors": ({"llama.block_count": 2_000_000_000}, "2000000000 blocks"),
    "one block more": ({"llama.block_count": 2}, "'blk.1.attn_norm.weight' is missing"),
    "other sizes": ({"llama.feed_forward_length": 512}, r"'blk.0.ffn_gate.weight' has the shape \(128, 256\)"),
    "heads": ({"llama.attention.head_count_kv": 3}, "4 heads cannot share 3"),
    "odd rope": ({"llama.rope.dimension_count": 31}, "31 rotated dimensions in heads of 32"),
    "no epsilon": ({"llama.attention.layer_norm_rms_epsilon": None}, "rms_epsilon is missing"),
    "infinite theta": ({"llama.rope.freq_base": float("inf")}, "impossible value inf"),
    "vocabulary": ({"tokenizer.ggml.tokens": ["a", "b"]}, "2 tokens, but"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_models(tmp_path: Path, case: str) -> None:
    overrides, message = MALFORMED[case]
    if "general.architecture" in overrides:
        path = tmp_path / "bare.gguf"  # the writer always names one, so it is renamed in place
        data = tiny(tmp_path).read_bytes().replace(b"general.architecture", b"general.architecturE")
        path.write_bytes(data)
    else:
        path = tiny(tmp_path, overrides=overrides)
    with pytest.raises(GgufMalformed, match=message):
        facts_of(path)


def test_tensors_that_would_be_ignored_are_refused(tmp_path: Path) -> None:
    """Such as the bias of a layer that has none here: leaving it out would give wrong text without a word."""
    data = tiny(tmp_path, architecture="llama").read_bytes()
    path = tmp_path / "odd.gguf"
    # The same length, so that the rest of the header stays where it is.
    path.write_bytes(data.replace(b"output_norm.weight", b"output_norm.weighs"))
    with pytest.raises(GgufMalformed, match=r"'output_norm.weight' is missing"):
        facts_of(path)
    writer = GGUFWriter(tmp_path / "extra.gguf", "llama")
    with open_gguf(tmp_path / "tiny.gguf") as gguf:
        for key, value in gguf.metadata.items():
            if key.startswith("llama."):
                writer.add_float32(key, value) if isinstance(value, float) else writer.add_uint32(key, value)
        for name in gguf.tensors:
            writer.add_tensor(name, gguf.dequantize(name))
    writer.add_tensor("blk.0.attn_output.bias", np.zeros(128, np.float32), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=r"1 tensors that .*'blk.0.attn_output.bias'"):
        facts_of(tmp_path / "extra.gguf")


@pytest.mark.real_model
def test_default_model() -> None:
    facts = facts_of(ensure_model(parse_model("smollm2:135m")))
    assert (facts.num_layers, facts.hidden_dim, facts.num_heads, facts.num_kv_heads) == (30, 576, 9, 3)
    assert facts.tied_head
