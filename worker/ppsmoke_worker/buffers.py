"""Numbers in and out of device memory: on the CPU through its very memory, elsewhere by tinygrad's copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Tensor, dtypes

_DTYPES = {np.dtype(np.float32): dtypes.float32, np.dtype(np.float16): dtypes.float16}


class DeviceBuffer:
    """A realized tensor of fixed shape that is written and read in place. `tensor` must not be assigned to."""

    def __init__(self, shape: tuple[int, ...], on_cpu: bool, dtype: type[np.floating[Any]] = np.float32) -> None:
        self._on_cpu = on_cpu
        self._dtype = np.dtype(dtype)
        if not on_cpu:
            self.tensor = Tensor.zeros(*shape, dtype=_DTYPES[self._dtype]).contiguous().realize()
            return
        self.tensor = Tensor.empty(*shape, dtype=_DTYPES[self._dtype]).realize()
        buffer = self.tensor.uop.base.buffer.ensure_allocated()
        memory = np.frombuffer(buffer.as_memoryview(force_zero_copy=True), self._dtype)
        self._memory = memory.reshape(shape)
        # Memory may come back from an earlier use, and what a mask hides must be finite all the same.
        self._memory[...] = 0

    def write(self, values: NDArray[np.floating[Any]]) -> None:
        """Fills the first rows; the others become zero."""
        if self._on_cpu:
            self._memory[: len(values)] = values
            self._memory[len(values) :] = 0
            return
        whole = np.zeros(self.tensor.shape, self._dtype)
        whole[: len(values)] = values
        self.tensor.assign(Tensor(whole, device=self.tensor.device)).realize()

    def read(self, rows: int) -> NDArray[np.float32]:
        """A copy of the first rows."""
        if self._on_cpu:
            return self._memory[:rows].astype(np.float32)
        return np.asarray(self.tensor.numpy()[:rows], np.float32)

    def fill(self, parts: Iterator[NDArray[np.float32]]) -> None:
        """Writes consecutive rows piece by piece, so that no second copy of a large matrix exists."""
        if not self._on_cpu:
            self.write(np.concatenate([part.astype(self._dtype) for part in parts]))
            return
        row = 0
        for part in parts:
            self._memory[row : row + len(part)] = part
            row += len(part)
