"""The engine of the CPU: C kernels on the weights as they are in the file. Import it after `prepare_device`."""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ppsmoke.errors import UnsupportedModel
from ppsmoke.model_facts import ModelFacts, stage_tensors
from ppsmoke.packed_weights import GROUP, TILE, format_of
from ppsmoke.stage_memory import KERNEL_CHUNK, KERNEL_SPAN, kernel_context
from ppsmoke.worker_protocol import Sampling
from ppsmoke_worker.clang import use_compiler
from ppsmoke_worker.device import DeviceSettings
from ppsmoke_worker.engine import EngineConfig, Rows, Vocabulary
from ppsmoke_worker.memory import Region
from ppsmoke_worker.opened_model import OpenedModel, rope_table
from ppsmoke_worker.packed_stage import PackedStage
from ppsmoke_worker.sampling import sample
from ppsmoke_worker.stage_layout import STOP, Job
from ppsmoke_worker.stage_program import StageProgram
from ppsmoke_worker.threads import Threads

_FLOAT_BYTES = 4
# The number of a system call of Linux: 98 on every machine but the oldest.
_FUTEX = {"x86_64": 202}.get(platform.machine(), 98)


class KernelEngine:
    """One call of one C function a pass. Any number of threads, stages and parts of a prompt gives the same bits."""

    name = "kernels"

    def __init__(self, config: EngineConfig, settings: DeviceSettings, threads: Threads) -> None:
        started = time.monotonic()
        self.device = settings.name
        self.threads = threads
        self._model = OpenedModel(config)
        self._facts = self._model.facts
        self.facts: Mapping[str, Any] = self._model.wire_facts
        if self._facts.head_dim % 2:
            raise UnsupportedModel(
                f"the kernels compute no heads of {self._facts.head_dim} dimensions", remedy="use --engine plain"
            )
        self._context = kernel_context(config.context)
        names = stage_tensors(self._facts, config.layer_start, config.layer_end)
        if not (self._model.is_last and self._facts.tied_head):
            names = tuple(name for name in names if name != "token_embd.weight")  # rows are looked up in the file
        gguf = self._model.gguf
        formats = sorted({format_of(tensor.type) for tensor in gguf.tensors.values() if len(tensor.shape) > 1})
        self._weights = PackedStage(gguf, self._facts, names)
        count = config.layer_end - config.layer_start
        config.progress("loading", 0, count, "blocks")
        self._blocks = self._weights.add_blocks(
            config.layer_start, config.layer_end, lambda done: config.progress("loading", done, count, "blocks")
        )
        head = self._weights.add_head() if self._model.is_last else None
        rope = rope_table(self._model, self._context)
        self._rope = Region(rope.nbytes)
        self._rope.bytes[:] = rope.view(np.uint8).reshape(-1)
        self.bytes_loaded = gguf.bytes_touched
        self._model.weights_are_read()
        self.load_s = time.monotonic() - started
        started = time.monotonic()
        config.progress("compiling", 0, 1, "kernels")
        assert settings.compiler is not None
        use_compiler(settings.compiler, ())
        self._program = StageProgram(_sizes(self._facts, formats))
        self._caches: dict[str, Region] = {}
        self._spare: list[Region] = []
        self._tell_kernel(head)
        self._helpers = [self._start_helper(index) for index in range(1, max(threads.decode, threads.prefill))]
        self._warm_up()
        config.progress("compiling", 1, 1, "kernels")
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
        rows = np.ascontiguousarray(rows, np.float32)
        result = np.empty_like(rows)
        job = self._program.job
        job.threads = self.threads.prefill if is_prefill else self.threads.decode
        job.position, job.tokens = position, len(rows)
        job.rows, job.result, job.cache, job.logits = _address(rows), _address(result), cache.address, 0
        self._program.run()
        return result

    def next_token(self, request_id: str, rows: Rows, position: int, sampling: Sampling) -> int:
        return sample(self.logits(rows), position, sampling)

    def logits(self, rows: Rows) -> Rows:
        """The logits after the last of `rows`, (vocabulary,); overwritten by the next ones."""
        row = np.ascontiguousarray(rows[-1], np.float32)
        job = self._program.job
        job.threads, job.position, job.tokens = self.threads.decode, 0, 1
        job.rows, job.result, job.cache, job.logits = _address(row), 0, 0, self._logits.address
        self._program.run()
        return self._logits.bytes.view(np.float32)[: self._facts.vocab_size]

    def reset(self, request_id: str | None) -> None:
        names = list(self._caches) if request_id is None else [request_id]
        for name in names:
            cache = self._caches.pop(name, None)
            # One is kept: the next request then needs no new memory.
            if cache is not None and not self._spare:
                self._spare.append(cache)

    def close(self) -> None:
        if self._helpers:
            self._program.run_job(Job(thread=STOP))
            for helper in self._helpers:
                helper.join()
            self._helpers.clear()
        self._caches.clear()
        self._spare.clear()
        self._model.gguf.close()
        del self._weights

    def _tell_kernel(self, head: Any) -> None:
        stage, program = self._program.stage, self._program
        stage.blocks, stage.block = len(self._blocks), ctypes.addressof(self._blocks)
        stage.rope, stage.context = self._rope.address, self._context
        if head is not None:
            stage.output_norm, stage.head = head
            self._logits = Region(stage.head.tiles * TILE * _FLOAT_BYTES)
        program.run()  # the job is still to measure
        threads = max(self.threads.decode, self.threads.prefill)
        self._scratch = Region((stage.shared_floats + threads * stage.own_floats) * _FLOAT_BYTES)
        stage.shared = self._scratch.address
        stage.own = stage.shared + stage.shared_floats * _FLOAT_BYTES
        stage.syscall = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value
        stage.futex_number = _FUTEX
        program.job.thread = 0

    def _start_helper(self, index: int) -> threading.Thread:
        job = Job(thread=index)
        helper = threading.Thread(target=self._program.run_job, args=(job,), name=f"kernel-{index}", daemon=True)
        helper.start()
        return helper

    def _warm_up(self) -> None:
        """Touches every weight and every path once, so that no request waits for pages."""
        rows = np.zeros((2, self._facts.hidden_dim), np.float32)
        self.forward("", rows, 0, True)
        self.forward("", rows[:1], 2, False)
        if self._model.is_last:
            self.logits(rows)
        self.reset("")

    def _new_cache(self) -> Region:
        return Region(self._program.stage.cache_bytes, huge=True)


def _sizes(facts: ModelFacts, formats: Sequence[int]) -> dict[str, str]:
    """What the C text wants defined. The formats are all that the file has, so that its stages share a kernel."""
    return {
        "HIDDEN": str(facts.hidden_dim),
        "FFN": str(facts.ffn_dim),
        "HEADS": str(facts.num_heads),
        "KV_HEADS": str(facts.num_kv_heads),
        "HEAD_DIM": str(facts.head_dim),
        "ROPE_DIM": str(facts.rope_dim),
        "QKV_BIAS": str(int(facts.qkv_bias)),
        "QK_NORM": str(int(facts.qk_norm)),
        "EPSILON": f"{facts.rms_eps!r}f",
        "CHUNK": str(KERNEL_CHUNK),
        "SPAN": str(KERNEL_SPAN),
        "TILE": str(TILE),
        "GROUP": str(GROUP),
        "FORMATS(f)": " ".join(f"f({format_:#x})" for format_ in formats),
    }


def _address(array: Rows) -> int:
    return int(array.ctypes.data)
