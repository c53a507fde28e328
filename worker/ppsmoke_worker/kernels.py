"""Compiled calls that are replayed with other buffers: TinyJit's capture without its checks on every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from tinygrad import Tensor, TinyJit
from tinygrad.engine.jit import _prepare_jit_inputs
from tinygrad.engine.realize import get_runtime, resolve_params
from tinygrad.uop.ops import Ops

Arguments = tuple[Any, ...]


class Kernels:
    """One function compiled once. `bind` fixes the buffers of later calls; the variables come with each call."""

    def __init__(self, function: Callable[..., Tensor], arguments: Arguments, weights: Mapping[str, Tensor]) -> None:
        self._jit = TinyJit(function)
        self._jit.cnt = 1  # capture at the first call: the trial run before it would only cost time
        self._jit(*arguments, **weights)

    def bind(self, arguments: Arguments, weights: Mapping[str, Tensor]) -> BoundKernels:
        """The tensors must be realized, of the shapes the function was compiled for, and outlive the result."""
        return BoundKernels(self._jit.captured, tuple(_prepare_jit_inputs(arguments, dict(weights))[0]))


class BoundKernels:
    """Call it with the variables' values, by name."""

    def __init__(self, captured: Any, inputs: tuple[Any, ...]) -> None:
        self._captured = captured
        self._inputs = inputs
        self._variables: dict[str, ctypes.c_uint64] = {}
        self._calls = self._native_calls()

    def __call__(self, variables: Mapping[str, int]) -> None:
        if self._calls is None:
            self._captured(list(self._inputs), dict(variables))
            return
        for name, cell in self._variables.items():
            cell.value = variables[name]
        for function, arguments in self._calls:
            function(*arguments)

    def _native_calls(self) -> list[tuple[Any, tuple[ctypes.c_uint64, ...]]] | None:
        """On the CPU, the plain C calls of the capture with their addresses (1 us each instead of 20); else None."""
        calls = []
        for call in self._captured.linear.src:
            program = call.src[0]
            if program.op is not Ops.PROGRAM:
                return None
            information = program.arg
            buffers = [buffer.buffer for buffer in resolve_params(call, self._inputs)]
            chosen = [buffers[index].ensure_allocated() for index in information.globals]
            if any(buffer.device != "CPU" for buffer in chosen):
                return None
            if tuple(information.global_size) != (1, 1, 1) or information.runtimevars:
                return None
            function = getattr(get_runtime("CPU", program), "fxn", None)
            if function is None:
                return None
            cells = [ctypes.c_uint64(int(buffer.get_buf("CPU").va_addr)) for buffer in chosen]
            cells += [self._cell(variable.expr) for variable in information.vars]
            calls.append((function, tuple(cells)))
        return calls

    def _cell(self, name: str) -> ctypes.c_uint64:
        return self._variables.setdefault(name, ctypes.c_uint64())
