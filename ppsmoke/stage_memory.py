"""How much memory a stage takes, from a model's header alone. The worker allocates what is said here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppsmoke.gguf_header import TensorTable
from ppsmoke.model_facts import ModelFacts, stage_tensors
from ppsmoke.packed_weights import packed_bytes

PREFILL_ROWS = 32  # tokens in one pass of the plain engine's prefill kernels
CONTEXT_STEP = 128  # its attention reads whole steps of this many positions
KERNEL_CHUNK = 32  # tokens that the C kernels work on together
KERNEL_SPAN = 256  # positions that lie together in their cache
ENGINES = ("kernels", "plain")
_FLOAT_BYTES = 4
# Interpreter, numpy, tinygrad and its compiled kernels, measured.
_PROCESS_BYTES = {"kernels": 80 << 20, "plain": 130 << 20}


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
    *,
    engine: str = "kernels",
    weights: str = "f32",
) -> StageMemory:
    """The memory of the stage with this block range; reads no tensor data.

    `engine` is one of ENGINES: `kernels` keeps matrices as they are in the file, `plain` as `weights` say (see
    weight_width_bytes).
    """
    names = stage_tensors(facts, layer_start, layer_end_exclusive)
    is_last = layer_end_exclusive == facts.num_layers
    file_bytes = weight_bytes = 0
    for name in names:
        tensor = model.tensors[name]
        file_bytes += tensor.nbytes
        if name == "token_embd.weight" and not (is_last and facts.tied_head):
            continue  # rows are looked up in the file
        if len(tensor.shape) == 1:
            weight_bytes += tensor.shape[0] * _FLOAT_BYTES
        elif engine == "kernels":
            weight_bytes += packed_bytes(tensor)
        else:
            weight_bytes += math.prod(tensor.shape) * weight_width_bytes(weights)
    blocks = layer_end_exclusive - layer_start
    positions = kernel_context(context) if engine == "kernels" else padded_context(context)
    floats = _kernel_floats(facts, positions) if engine == "kernels" else _plain_floats(facts, positions)
    logits = 2 * facts.vocab_size if is_last else 0
    scratch_bytes = _PROCESS_BYTES[engine] + _FLOAT_BYTES * (floats + positions * (facts.rope_dim + 1) + logits)
    kv_bytes = blocks * 2 * positions * facts.num_kv_heads * facts.head_dim * _FLOAT_BYTES
    return StageMemory(file_bytes, weight_bytes, kv_bytes, scratch_bytes)


def weight_width_bytes(weights: str) -> int:
    """Bytes of one value of a matrix in memory: f32, the file's exact values, 4; f16 2."""
    return {"f32": 4, "f16": 2}[weights]


def padded_context(context: int) -> int:
    """Positions kept for a context: a last, padded prefill pass may write past it, and attention reads whole steps."""
    return -(-(context + PREFILL_ROWS) // CONTEXT_STEP) * CONTEXT_STEP


def kernel_context(context: int) -> int:
    """Positions that the C kernels keep for a context. Their memory exists once they are reached."""
    return -(-context // KERNEL_SPAN) * KERNEL_SPAN


def _kernel_floats(facts: ModelFacts, positions: int) -> int:
    """Activations of one thread, and what each head gets from each span of the cache."""
    queries, keys = facts.num_heads * facts.head_dim, facts.num_kv_heads * facts.head_dim
    rows = 4 * facts.hidden_dim + 4 * queries + 2 * keys + 3 * facts.ffn_dim
    spans = positions // KERNEL_SPAN * facts.num_heads * (facts.head_dim + 16)
    return KERNEL_CHUNK * (rows + spans)


def _plain_floats(facts: ModelFacts, positions: int) -> int:
    """Scores and activations of a pass."""
    rows = PREFILL_ROWS * (8 * facts.hidden_dim + 3 * facts.ffn_dim + 4 * facts.num_heads * facts.head_dim)
    return 2 * facts.num_heads * PREFILL_ROWS * positions + rows
