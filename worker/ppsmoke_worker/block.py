"""One transformer block of the dense llama family in plain tensors. Every block of a model has the same shape, so one
set of compiled kernels, with the weights as inputs, serves all blocks of all stages: any split computes the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinygrad import Tensor

from ppsmoke.model_facts import ModelFacts
from ppsmoke.stage_memory import CONTEXT_STEP


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """`qkv` and `gate_up` are stacked along their rows. The rows of q and k are in the order of halves (see rope)."""

    attn_norm: Tensor
    qkv: Tensor
    attn_output: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None

    def named(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


def block_forward(
    facts: ModelFacts,
    rows: Tensor,  # (T, hidden)
    keys: Tensor,  # (kv heads, padded context, head): written at start .. start + T
    values: Tensor,  # (kv heads, head, padded context): positions last, so that a sum over them runs along memory
    rope: Tensor,  # (padded context, rope_dim): cosines, then sines
    positions: Tensor,  # (padded context,): 0, 1, 2, ...
    start: Any,  # bound variable
    steps: Any,  # bound variable: attention reads steps * CONTEXT_STEP positions
    weights: BlockWeights,
) -> Tensor:
    count = rows.shape[0]
    heads, kv_heads, head = facts.num_heads, facts.num_kv_heads, facts.head_dim
    # Whole steps of a fixed length: how many positions are masked away then never changes the order of a sum, and
    # the bits of a row do not depend on how its prompt was cut.
    length = steps * CONTEXT_STEP
    qkv = _linear(rms_norm(rows, weights.attn_norm, facts.rms_eps).contiguous(), weights.qkv)
    if weights.qkv_bias is not None:
        qkv = qkv + weights.qkv_bias
    q = qkv[:, : heads * head].reshape(count, heads, head)
    k = qkv[:, heads * head : (heads + kv_heads) * head].reshape(count, kv_heads, head)
    v = qkv[:, (heads + kv_heads) * head :].reshape(count, kv_heads, head)
    if weights.q_norm is not None and weights.k_norm is not None:
        q, k = rms_norm(q, weights.q_norm, facts.rms_eps), rms_norm(k, weights.k_norm, facts.rms_eps)
    angles = rope[start : start + count].reshape(count, 1, facts.rope_dim)
    q, k = _rotate(q, angles, facts), _rotate(k, angles, facts)
    known_keys = _stored(keys, keys[:, start : start + count, :], k.transpose(0, 1))[:, :length]
    known_values = _stored(values, values[:, :, start : start + count], v.permute(1, 2, 0))[:, :, :length]
    queries = (q * head**-0.5).reshape(count, kv_heads, heads // kv_heads, head).permute(1, 2, 0, 3).contiguous()
    scores = (queries.unsqueeze(-2) * known_keys.reshape(kv_heads, 1, 1, length, head)).sum(-1)
    visible = positions[:length].reshape(1, length) <= positions[start : start + count].reshape(count, 1)
    scores = visible.where(scores, float("-inf"))
    shares = (scores - scores.max(-1, keepdim=True)).exp().contiguous()
    mixed = (shares.unsqueeze(-2) * known_values.reshape(kv_heads, 1, 1, head, length)).sum(-1)
    mixed = mixed / shares.sum(-1, keepdim=True)
    attended = mixed.permute(2, 0, 1, 3).reshape(count, heads * head).contiguous()
    hidden = (rows + _linear(attended, weights.attn_output)).contiguous()
    gate_up = _linear(rms_norm(hidden, weights.ffn_norm, facts.rms_eps).contiguous(), weights.gate_up).contiguous()
    inner = (gate_up[:, : facts.ffn_dim].silu() * gate_up[:, facts.ffn_dim :]).contiguous()
    return hidden + _linear(inner, weights.down)


def head_forward(facts: ModelFacts, row: Tensor, output_norm: Tensor, head: Tensor) -> Tensor:
    """(1, hidden) to the logits (1, vocabulary)."""
    return _linear(rms_norm(row, output_norm, facts.rms_eps).contiguous(), head)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rows * (rows.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def _linear(rows: Tensor, weight: Tensor) -> Tensor:
    return (rows.unsqueeze(-2) * weight.float()).sum(-1)


def _rotate(rows: Tensor, angles: Tensor, facts: ModelFacts) -> Tensor:
    """(T, heads, head_dim): dimension i with i + rope_dim / 2; the dimensions from rope_dim on stay."""
    half = facts.rope_dim // 2
    cosines, sines = angles[..., :half], angles[..., half:]
    low, high = rows[..., :half], rows[..., half : facts.rope_dim]
    parts = [high * cosines + low * sines]
    if facts.rope_dim < facts.head_dim:
        parts.append(rows[..., facts.rope_dim :])
    return (low * cosines - high * sines).cat(*parts, dim=-1)


def _stored(cache: Tensor, place: Tensor, new: Tensor) -> Tensor:
    """The cache as it is after `new` was written to `place`."""
    return Tensor(cache.uop.after(place.uop.store(new.uop)))
