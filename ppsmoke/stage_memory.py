"""How much memory a stage takes, from a model's header alone. The worker allocates what is said here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppsmoke.gguf_header import TensorTable
from ppsmoke.model_facts import ModelFacts, stage_tensors

PREFILL_ROWS = 32  # tokens in one pass of the prefill kernels
KERNEL_CHUNK = 32  # tokens that the C kernels work on together
_KERNEL_SPAN = 128
CONTEXT_STEP = 128  # attention reads whole steps of this many positions
_FLOAT_BYTES = 4
_PROCESS_BYTES = 130 * 1024 * 1024  # interpreter, numpy, tinygrad and its compiled kernels, measured


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes. `file_bytes`: of the stage's tensors in the file (First: the whole embedding, though only rows are read).

    `weight_bytes` in memory, `kv_bytes` of one request at full context, `scratch_bytes` of the process and its
    activations.
    """

    file_bytes: int
    weight_bytes: int
    kv_bytes: int
    scratch_bytes: int

    @property
    def total_bytes(self) -> int:
        """What one request needs in memory; the file's own pages can be dropped and are not in it."""
        return self.weight_bytes + self.kv_bytes + self.scratch_bytes


def stage_memory(
    model: TensorTable,
    facts: ModelFacts,
    layer_start: int,
    layer_end_exclusive: int,
    context: int,
    weights: str = "f32",
) -> StageMemory:
    """The memory of the stage with this block range; reads no tensor data. `weights` as in weight_width_bytes."""
    matrix_width = weight_width_bytes(weights)
    names = stage_tensors(facts, layer_start, layer_end_exclusive)
    is_last = layer_end_exclusive == facts.num_layers
    file_bytes = weight_bytes = 0
    for name in names:
        tensor = model.tensors[name]
        file_bytes += tensor.nbytes
        if name == "token_embd.weight" and not (is_last and facts.tied_head):
            continue  # rows are looked up in the file
        width = matrix_width if len(tensor.shape) > 1 else _FLOAT_BYTES
        weight_bytes += math.prod(tensor.shape) * width
    blocks = layer_end_exclusive - layer_start
    positions = padded_context(context)
    scores = 2 * facts.num_heads * PREFILL_ROWS * positions
    rows = PREFILL_ROWS * (8 * facts.hidden_dim + 3 * facts.ffn_dim + 4 * facts.num_heads * facts.head_dim)
    tables = positions * (facts.rope_dim + 1)
    logits = 2 * facts.vocab_size if is_last else 0
    scratch_bytes = _PROCESS_BYTES + _FLOAT_BYTES * (scores + rows + tables + logits)
    return StageMemory(file_bytes, weight_bytes, blocks * kv_bytes_per_block(facts, context), scratch_bytes)


def weight_width_bytes(weights: str) -> int:
    """Bytes of one value of a matrix in memory: f32, the file's exact values, 4; f16 2."""
    return {"f32": 4, "f16": 2}[weights]


def kv_bytes_per_block(facts: ModelFacts, context: int) -> int:
    """Keys and values of one block for one request, float32."""
    return 2 * padded_context(context) * facts.num_kv_heads * facts.head_dim * _FLOAT_BYTES


def padded_context(context: int) -> int:
    """Positions kept for a context: a last, padded prefill pass may write past it, and attention reads whole steps."""
    return -(-(context + PREFILL_ROWS) // CONTEXT_STEP) * CONTEXT_STEP


def kernel_context(context: int) -> int:
    """Positions that the C kernels keep for a context: whole spans of their cache."""
    return -(-context // _KERNEL_SPAN) * _KERNEL_SPAN
