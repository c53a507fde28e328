"""What a GGUF says about its model, checked: the architecture, its sizes, and that every tensor is there as it should.

A model that would need anything not computed here (experts, other rope scaling, further tensors) is refused, because
ignoring it would give wrong text without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import GgufMalformed, UnsupportedModel
from ppsmoke.gguf_file import GgufFile
from ppsmoke.gguf_header import GgufTensor, TextArray

SUPPORTED_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_SUPPORTED = f"supported are the dense {', '.join(SUPPORTED_ARCHITECTURES)} models"
_MAX_SIZE = 1 << 31
_DEFAULT_ROPE_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The sizes of one dense transformer."""

    architecture: str
    name: str
    num_layers: int
    hidden_dim: int
    ffn_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_dim: int  # how many of head_dim are rotated
    rope_theta: float
    rms_eps: float
    vocab_size: int
    context_length: int  # that the model was trained for
    qkv_bias: bool
    qk_norm: bool
    tied_head: bool  # the head is the embedding
    rope_freqs: bool  # rope_freqs.weight divides the frequencies (llama 3.1 and later)

    @property
    def rope_neox(self) -> bool:
        """True: dimension i is rotated with i + rope_dim / 2. False: with its neighbour, as llama GGUFs have it."""
        return self.architecture != "llama"


def read_model_facts(gguf: GgufFile) -> ModelFacts:
    """The facts of an open model. Raises UnsupportedModel and GgufMalformed, both naming what and where."""
    return model_facts(gguf.metadata, gguf.tensors, where=str(gguf.paths[0]))


def model_facts(metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], *, where: str) -> ModelFacts:
    """The same from a header alone, so that a remote file can be judged before it is fetched."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise GgufMalformed(f"{where} does not name its architecture (general.architecture)")
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModel(f"{where} has the architecture {architecture!r}; {_SUPPORTED}")
    keys = _Keys(metadata, architecture, where)
    _refuse_what_is_not_computed(keys)
    hidden_dim = keys.size("embedding_length")
    num_heads = keys.size("attention.head_count")
    head_dim = keys.size("attention.key_length", default=hidden_dim // num_heads)
    facts = ModelFacts(
        architecture=architecture,
        name=str(metadata.get("general.name") or metadata.get("general.basename") or architecture),
        num_layers=keys.size("block_count"),
        hidden_dim=hidden_dim,
        ffn_dim=keys.size("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.size("attention.head_count_kv", default=num_heads),
        head_dim=head_dim,
        rope_dim=keys.size("rope.dimension_count", default=head_dim),
        rope_theta=keys.positive("rope.freq_base", default=_DEFAULT_ROPE_THETA),
        rms_eps=keys.positive("attention.layer_norm_rms_epsilon"),
        vocab_size=_vocab_size(metadata, tensors, where),
        context_length=keys.size("context_length"),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        qk_norm=architecture == "qwen3",
        tied_head="output.weight" not in tensors,
        rope_freqs=architecture == "llama" and "rope_freqs.weight" in tensors,
    )
    if keys.size("attention.value_length", default=head_dim) != head_dim:
        raise UnsupportedModel(f"{where} has values of another length than its keys; {_SUPPORTED}")
    if num_heads % facts.num_kv_heads:
        raise GgufMalformed(f"{where}: {num_heads} heads cannot share {facts.num_kv_heads} key/value heads")
    if facts.rope_dim % 2 or facts.rope_dim > head_dim:
        raise GgufMalformed(f"{where}: {facts.rope_dim} rotated dimensions in heads of {head_dim}")
    _check_tensors(facts, tensors, where)
    return facts


def stage_tensors(facts: ModelFacts, layer_start: int, layer_end_exclusive: int) -> tuple[str, ...]:
    """The names of exactly the tensors that the stage of this block range reads.

    The first stage only looks rows of `token_embd.weight` up; the last has `output_norm.weight` and its head, which is
    `output.weight`, or `token_embd.weight` where they are tied.
    """
    names = []
    if layer_start == 0:
        names.append("token_embd.weight")
    if facts.rope_freqs:
        names.append("rope_freqs.weight")
    for block in range(layer_start, layer_end_exclusive):
        names.extend(_block_shapes(facts, block))
    if layer_end_exclusive == facts.num_layers:
        names.extend(("output_norm.weight", "token_embd.weight" if facts.tied_head else "output.weight"))
    return tuple(dict.fromkeys(names))


class _Keys:
    """Typed access to the `<architecture>.*` metadata."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str, where: str) -> None:
        self._metadata = metadata
        self._architecture = architecture
        self.where = where

    def get(self, key: str) -> Any:
        return self._metadata.get(f"{self._architecture}.{key}")

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                raise UnsupportedModel(
                    f"{self.where} has blocks of different shape ({self._architecture}.{key}); {_SUPPORTED}"
                )
            value = value[0]
        if value is None and default is not None:
            value = default
        if type(value) is not int or not 0 < value < _MAX_SIZE:
            raise self._bad(key, value)
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            value = default
        if type(value) not in (int, float) or not (0 < value < math.inf):
            raise self._bad(key, value)
        return float(value)

    def _bad(self, key: str, value: Any) -> GgufMalformed:
        if value is None:
            return GgufMalformed(f"{self.where}: the metadata key {self._architecture}.{key} is missing")
        shown = repr(value)[:60]
        return GgufMalformed(f"{self.where}: {self._architecture}.{key} has the impossible value {shown}")


def _refuse_what_is_not_computed(keys: _Keys) -> None:
    where = keys.where
    if keys.get("expert_count"):
        raise UnsupportedModel(f"{where} is a mixture of {keys.get('expert_count')} experts; {_SUPPORTED}")
    scaling = keys.get("rope.scaling.type")
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0
    if scaling not in (None, "", "none", "linear") or (scaling != "none" and factor != 1.0):
        raise UnsupportedModel(
            f"{where} scales its rope by {scaling or 'linear'!r} with factor {factor}; supported are no scaling and "
            "the frequency factors of llama 3 (rope_freqs.weight)"
        )
    window = keys.get("attention.sliding_window")
    if window and window < (keys.get("context_length") or 0):
        raise UnsupportedModel(f"{where} attends through a sliding window of {window} tokens; {_SUPPORTED}")
    if keys.get("attention.causal") is False:
        raise UnsupportedModel(f"{where} attends in both directions (an embedding model); {_SUPPORTED}")
    for key in ("attention.scale", "logit_scale", "residual_scale", "embedding_scale"):
        if keys.get(key):
            raise UnsupportedModel(f"{where} sets {key}, which is not computed here; {_SUPPORTED}")


def _vocab_size(metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], where: str) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise GgufMalformed(f"{where}: the tensor 'token_embd.weight' is missing or not a matrix")
    vocab_size = embedding.shape[1]
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list | TextArray) and len(tokens) != vocab_size:
        raise GgufMalformed(f"{where}: {len(tokens)} tokens, but {vocab_size} rows in 'token_embd.weight'")
    return vocab_size


def _check_tensors(facts: ModelFacts, tensors: Mapping[str, GgufTensor], where: str) -> None:
    wanted: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (facts.hidden_dim, facts.vocab_size),
        "output_norm.weight": (facts.hidden_dim,),
    }
    if not facts.tied_head:
        wanted["output.weight"] = (facts.hidden_dim, facts.vocab_size)
    if facts.rope_freqs:
        wanted["rope_freqs.weight"] = (facts.rope_dim // 2,)
    if facts.num_layers > len(tensors):
        raise GgufMalformed(f"{where}: {facts.num_layers} blocks are promised in {len(tensors)} tensors")
    for block in range(facts.num_layers):
        wanted |= _block_shapes(facts, block)
    for name, shape in wanted.items():
        if name not in tensors:
            raise GgufMalformed(f"{where}: the tensor {name!r} is missing")
        if tensors[name].shape != shape:
            raise GgufMalformed(f"{where}: the tensor {name!r} has the shape {tensors[name].shape}, not {shape}")
    unknown = sorted(set(tensors) - set(wanted))
    if unknown:
        raise UnsupportedModel(
            f"{where} has {len(unknown)} tensors that a {facts.architecture} model of {facts.num_layers} blocks "
            f"does not compute with ({unknown[0]!r} first); {_SUPPORTED}"
        )


def _block_shapes(facts: ModelFacts, block: int) -> dict[str, tuple[int, ...]]:
    """The tensors of one block, in the order of their use, with their shapes in ggml order."""
    hidden, ffn, head = facts.hidden_dim, facts.ffn_dim, facts.head_dim
    queries, keys = facts.num_heads * head, facts.num_kv_heads * head
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (hidden, queries),
        "attn_k.weight": (hidden, keys),
        "attn_v.weight": (hidden, keys),
    }
    if facts.qkv_bias:
        shapes |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if facts.qk_norm:
        shapes |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    shapes |= {
        "attn_output.weight": (queries, hidden),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (hidden, ffn),
        "ffn_up.weight": (hidden, ffn),
        "ffn_down.weight": (ffn, hidden),
    }
    return {f"blk.{block}.{name}": shape for name, shape in shapes.items()}
