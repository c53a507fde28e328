"""The C text of a stage as one kernel of a TinyJit: tinygrad compiles it, keeps it in its cache and loads it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np
from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.engine.realize import get_runtime
from tinygrad.uop.ops import KernelInfo, Ops, ProgramInfo, UOp

from ppsmoke_worker.stage_layout import MEASURE, Job, Stage

_NAME = "pp_stage"
_FILES = ("vectors.h", "formats.h", "matmul.h", "team.h", "model.h", "attention.h", "stage.c")


class StageProgram:
    """`source` is the whole C text; `stage` and `job` are what it reads and writes; `run` calls it, without the GIL."""

    def __init__(self, sizes: Mapping[str, str]) -> None:
        self._stage_tensor = _words(ctypes.sizeof(Stage))
        self._job_tensor = _words(ctypes.sizeof(Job))
        self.stage = Stage.from_address(_address(self._stage_tensor))
        self.job = Job.from_address(_address(self._job_tensor))
        self.job.thread = MEASURE
        self.source = _source(sizes)
        self._jit = TinyJit(self._traced(self.source))
        self._jit.cnt = 1  # capture at the first call: the trial run before it would only cost time
        self._jit(self._stage_tensor, self._job_tensor)
        self._entry = self._native_entry()
        self._stage_cell = ctypes.c_uint64(_address(self._stage_tensor))
        self._job_cell = ctypes.c_uint64(_address(self._job_tensor))

    def run(self) -> None:
        self._entry(self._stage_cell, self._job_cell)

    def run_job(self, job: Job) -> None:
        """With a job of its own, for another thread."""
        self._entry(self._stage_cell, ctypes.c_uint64(ctypes.addressof(job)))

    def _traced(self, source: str) -> Callable[[Tensor, Tensor], Tensor]:
        def kernel(*buffers: UOp) -> UOp:
            parameters = tuple(buffer.base for buffer in buffers)
            every = tuple(range(len(parameters)))
            information = ProgramInfo(
                name=_NAME,
                global_size=(1, 1, 1),
                local_size=(1, 1, 1),
                globals=every,
                outs=(0,),
                ins=every,
                target=Device["CPU"].renderer.target,
            )
            sink = UOp.sink(*parameters, arg=KernelInfo(name=_NAME))
            parts = (sink, UOp(Ops.LINEAR, src=parameters), UOp(Ops.SOURCE, arg=source))
            return UOp(Ops.PROGRAM, src=parts, arg=information)

        def run(stage: Tensor, job: Tensor) -> Tensor:
            return stage.custom_kernel(job, fxn=kernel)[0].realize()

        return run

    def _native_entry(self) -> Any:
        """The compiled function itself: a call through the jit costs as much as a small stage's work."""
        (call,) = self._jit.captured.linear.src
        return get_runtime("CPU", call.src[0]).fxn


def _source(sizes: Mapping[str, str]) -> str:
    folder = resources.files(__package__) / "kernels_c"
    defines = [f"#define {name} {value}\n" for name, value in sizes.items()]
    return "".join([*defines, *((folder / name).read_text() for name in _FILES)])


def _words(nbytes: int) -> Tensor:
    tensor = Tensor.empty(-(-nbytes // 8), dtype=dtypes.uint64).realize()
    memory = np.frombuffer(tensor.uop.base.buffer.ensure_allocated().as_memoryview(force_zero_copy=True), np.uint64)
    memory[:] = 0
    return tensor


def _address(tensor: Tensor) -> int:
    return int(tensor.uop.base.buffer.get_buf("CPU").va_addr)
