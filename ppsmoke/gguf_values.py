"""The values of stored tensors, as arrays. Loaded only by those who compute: numpy takes 90 ms, the `gguf` package,
which knows how to undo the quantisations, another 60."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

from ppsmoke.ggml_types import GgmlType


def stored_bytes(mapped: mmap, offset: int, count: int) -> NDArray[np.uint8]:
    """The bytes themselves, as a view."""
    return np.frombuffer(mapped, np.uint8, count, offset)


def dequantized(rows: NDArray[np.uint8], kind: GgmlType) -> NDArray[np.float32]:
    """Values of whole rows of stored bytes, as an own copy: a caller's array must outlive the mapping."""
    if kind is GgmlType.F32:
        return rows.view(np.float32).copy()
    # Most stages of most models get by without it.
    from gguf.quants import GGMLQuantizationType, dequantize

    return np.asarray(dequantize(rows, GGMLQuantizationType(kind)), np.float32)


def picked_rows(rows: NDArray[np.uint8], indices: Sequence[int], *, of: str) -> NDArray[np.uint8]:
    """Copies of some rows. IndexError for one that the tensor `of` does not have."""
    wanted = np.asarray(indices, dtype=np.int64)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(rows)):
        raise IndexError(f"a row outside 0..{len(rows) - 1} of {of}")
    return rows[wanted]
