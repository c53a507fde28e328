"""The engine of other devices, and of a CPU on which the C kernels cannot be used: plain tensors in tinygrad. Import it
after `prepare_device`."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tinygrad import Tensor, UOp, dtypes
from tinygrad.helpers import CACHELEVEL

from ppsmoke.stage_memory import CONTEXT_STEP, PREFILL_ROWS, padded_context, weight_width_bytes
from ppsmoke.worker_protocol import Sampling
from ppsmoke_worker.block import BlockWeights, block_forward, head_forward
from ppsmoke_worker.buffers import DeviceBuffer
from ppsmoke_worker.clang import use_compiler
from ppsmoke_worker.compiler import SPEED_FLAGS
from ppsmoke_worker.device import DeviceSettings, is_cpu
from ppsmoke_worker.device_check import check_device
from ppsmoke_worker.engine import EngineConfig, Progress, Rows, Vocabulary
from ppsmoke_worker.kernels import BoundKernels, Kernels
from ppsmoke_worker.opened_model import OpenedModel
from ppsmoke_worker.sampling import sample
from ppsmoke_worker.weights import WeightLoader

_DECODE_ROWS = 1


@dataclass(slots=True)
class _Cache:
    """One request's keys and values in every block, and the calls that work on them, by rows a pass."""

    buffers: list[tuple[DeviceBuffer, DeviceBuffer]]
    passes: dict[int, list[BoundKernels]]


class PlainEngine:
    """Matrices are kept as float16 or float32 (see weight_width_bytes); everything else is float32."""

    name = "plain"

    def __init__(self, config: EngineConfig, settings: DeviceSettings, *, weights: str = "f32") -> None:
        started = time.monotonic()
        self.device = settings.name
        self._on_cpu = is_cpu(settings.name)
        self._model = OpenedModel(config)
        self._facts = self._model.facts
        self._context = config.context
        self.facts: Mapping[str, Any] = self._model.wire_facts
        dtype = np.float16 if weight_width_bytes(weights) == 2 else np.float32
        if settings.compiler is not None:
            use_compiler(settings.compiler, SPEED_FLAGS)
        check_device(settings, dtypes.float16 if dtype is np.float16 else dtypes.float32)
        loader = WeightLoader(self._model, self._on_cpu, dtype)
        count = config.layer_end - config.layer_start
        config.progress("loading", 0, count, "blocks")
        self._blocks = []
        for index in range(config.layer_start, config.layer_end):
            self._blocks.append(loader.block(index))
            config.progress("loading", len(self._blocks), count, "blocks")
        self._rope, self._positions = loader.tables(padded_context(config.context))
        self._head = loader.head() if self._model.is_last else None
        self.bytes_loaded = self._model.gguf.bytes_touched
        self._model.weights_are_read()
        self.load_s = time.monotonic() - started
        self._bound_head: BoundKernels | None = None
        started = time.monotonic()
        self._compile(config.progress)
        self.compile_s = time.monotonic() - started

    @property
    def vocabulary(self) -> Vocabulary:
        return self._model.vocabulary

    def embed(self, tokens: Sequence[int]) -> Rows:
        return self._model.embed(tokens)

    def forward(self, request_id: str, rows: Rows, position: int, is_prefill: bool) -> Rows:
        cache = self._caches.get(request_id)
        if cache is None:
            cache = self._caches[request_id] = self._spare.pop() if self._spare else self._new_cache()
        width = PREFILL_ROWS if is_prefill else _DECODE_ROWS
        parts = [
            self._pass(cache, rows[first : first + width], position + first, width)
            for first in range(0, len(rows), width)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def next_token(self, request_id: str, rows: Rows, position: int, sampling: Sampling) -> int:
        return sample(self.logits(rows), position, sampling)

    def logits(self, rows: Rows) -> Rows:
        """The logits after the last of `rows`, (vocabulary,)."""
        assert self._bound_head is not None
        self._head_row.write(rows[-1:])
        self._bound_head({})
        logits: Rows = self._logits.read(1)[0]
        return logits

    def reset(self, request_id: str | None) -> None:
        names = list(self._caches) if request_id is None else [request_id]
        for name in names:
            cache = self._caches.pop(name, None)
            # One is kept: the next request then needs no new memory and no new calls.
            if cache is not None and not self._spare:
                self._spare.append(cache)

    def close(self) -> None:
        self._caches.clear()
        self._spare.clear()
        self._blocks.clear()
        self._head = self._bound_head = None
        self._kernels.clear()
        self._model.gguf.close()

    def _pass(self, cache: _Cache, rows: Rows, position: int, width: int) -> Rows:
        buffer = self._rows[width]
        buffer.write(rows)
        steps = -(-(position + width) // CONTEXT_STEP)
        variables = {"start": position, "steps": steps}
        for call in cache.passes[width]:
            call(variables)
        return buffer.read(len(rows))

    def _compile(self, progress: Progress) -> None:
        """Compiles the kernels and runs each once, so that no request meets a compiler."""
        self._rows = {width: self._buffer(width, self._facts.hidden_dim) for width in (_DECODE_ROWS, PREFILL_ROWS)}
        self._caches: dict[str, _Cache] = {}
        self._spare: list[_Cache] = []
        first = self._new_cache_buffers(1)[0]
        self._kernels: dict[int, Kernels] = {}
        count = len(self._rows) + (self._head is not None)
        progress("compiling", 0, count, "kernels")
        for width in self._rows:
            arguments = self._arguments(width, *first)
            weights = self._blocks[0].named()
            self._kernels[width] = _compiled(self._block_function(), arguments, weights)
            progress("compiling", len(self._kernels), count, "kernels")
        if self._head is not None:
            self._head_row = self._buffer(1, self._facts.hidden_dim)
            self._logits = self._buffer(1, self._facts.vocab_size)
            arguments = (self._head_row.tensor, self._logits.tensor)
            self._bound_head = _compiled(self._head_function(), arguments, self._head).bind(arguments, self._head)
            progress("compiling", count, count, "kernels")
        self._spare.append(self._new_cache())
        for width in self._rows:
            self._pass(self._spare[0], np.zeros((1, self._facts.hidden_dim), np.float32), 0, width)
        if self._head is not None:
            self.logits(np.zeros((1, self._facts.hidden_dim), np.float32))

    def _block_function(self) -> Any:
        facts = self._facts

        def run(
            rows: Tensor,
            keys: Tensor,
            values: Tensor,
            rope: Tensor,
            positions: Tensor,
            start: Any,
            steps: Any,
            **named: Tensor,
        ) -> Tensor:
            out = block_forward(facts, rows, keys, values, rope, positions, start, steps, BlockWeights(**named))
            return rows.assign(out).realize()

        return run

    def _head_function(self) -> Any:
        facts = self._facts

        def run(row: Tensor, logits: Tensor, *, output_norm: Tensor, head: Tensor) -> Tensor:
            return logits.assign(head_forward(facts, row, output_norm, head)).realize()

        return run

    def _arguments(self, width: int, keys: DeviceBuffer, values: DeviceBuffer) -> tuple[Any, ...]:
        padded = padded_context(self._context)
        start = UOp.variable("start", 0, self._context - 1).bind(0)
        steps = UOp.variable("steps", 1, padded // CONTEXT_STEP).bind(1)
        return (self._rows[width].tensor, keys.tensor, values.tensor, self._rope, self._positions, start, steps)

    def _new_cache(self) -> _Cache:
        buffers = self._new_cache_buffers(len(self._blocks))
        passes = {
            width: [
                kernels.bind(self._arguments(width, keys, values), weights.named())
                for weights, (keys, values) in zip(self._blocks, buffers, strict=True)
            ]
            for width, kernels in self._kernels.items()
        }
        return _Cache(buffers, passes)

    def _new_cache_buffers(self, count: int) -> list[tuple[DeviceBuffer, DeviceBuffer]]:
        heads, head, positions = self._facts.num_kv_heads, self._facts.head_dim, padded_context(self._context)
        return [(self._buffer(heads, positions, head), self._buffer(heads, head, positions)) for _ in range(count)]

    def _buffer(self, *shape: int) -> DeviceBuffer:
        return DeviceBuffer(shape, self._on_cpu)


def _compiled(function: Any, arguments: tuple[Any, ...], weights: Mapping[str, Tensor]) -> Kernels:
    try:
        return Kernels(function, arguments, weights)
    except sqlite3.Error as error:  # the disk filled up, or the cache was taken away: go on without it
        print(f"kernels are no longer cached: {error}", file=sys.stderr, flush=True)
        CACHELEVEL.value = 0
        return Kernels(function, arguments, weights)
