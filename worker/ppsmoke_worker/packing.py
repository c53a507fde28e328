"""A GGUF's matrices as the C kernels read them; formats.h says what the records and the formats are.

Nothing is rounded: quants stay what they are in the file, a scale that is a product of two is kept in float32, which
holds it exactly, and the types whose weights are no quant times a scale are kept as the float32 values they stand for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsmoke.ggml_types import GgmlType as Type
from ppsmoke.gguf_file import GgufFile
from ppsmoke.gguf_values import dequantized
from ppsmoke.packed_weights import GROUP, HALVES, MINIMUM, TILE, WIDE, bits_of, format_of
from ppsmoke_worker.quants import TAKE_APART

_ROWS_A_PIECE = 16 * TILE

Bytes = NDArray[np.uint8]
Array = NDArray[Any]


def pack(gguf: GgufFile, name: str, order: NDArray[np.int64] | None, memory: Bytes) -> None:
    """Writes a matrix into `memory`, zeros of packed_bytes(). `order` says which stored row each row is."""
    tensor = gguf.tensors[name]
    columns, rows = tensor.shape
    format_ = format_of(tensor.type)
    records = memory.view(_record(format_, tensor.type)).reshape(-1, -(-columns // GROUP))
    stored = gguf.raw(name).reshape(rows, -1)
    for first in range(0, rows, _ROWS_A_PIECE):
        piece = stored[first : first + _ROWS_A_PIECE] if order is None else stored[order[first : first + _ROWS_A_PIECE]]
        tiles = -(-len(piece) // TILE)
        if missing := tiles * TILE - len(piece):
            piece = np.concatenate([piece, np.zeros((missing, piece.shape[1]), np.uint8)])
        into = records[first // TILE : first // TILE + tiles]
        if tensor.type in TAKE_APART:
            _put_quants(into, bits_of(format_), tensor.type, piece)
        else:
            _put_values(into, columns, tensor.type, piece)


def _record(format_: int, kind: Type) -> np.dtype[Any]:
    if kind not in TAKE_APART:
        value = {Type.F16: "<u2", Type.BF16: "<u2"}.get(kind, "<f4")
        return np.dtype([("values", value, (GROUP, TILE))])
    scale, parts = "<f4" if format_ & WIDE else "<f2", 2 if format_ & HALVES else 1
    fields: list[Any] = [("words", "<u4", (bits_of(format_), TILE)), ("scales", scale, (parts, TILE))]
    if format_ & MINIMUM:
        fields.append(("minimums", scale, (parts, TILE)))
    return np.dtype(fields)


def _put_quants(records: Array, bits: int, kind: Type, stored: Bytes) -> None:
    tiles, groups = records.shape
    quants = TAKE_APART[kind](stored)
    values = quants.values
    if bits == 4:
        values = values[:, 0::2] | values[:, 1::2] << np.uint8(4)
    words = np.ascontiguousarray(values).view("<u4").reshape(tiles, TILE, groups, bits)
    records["words"] = words.transpose(0, 2, 3, 1)
    records["scales"] = quants.scales.reshape(tiles, TILE, groups, -1).transpose(0, 2, 3, 1)
    if quants.minimums is not None:
        records["minimums"] = quants.minimums.reshape(tiles, TILE, groups, -1).transpose(0, 2, 3, 1)


def _put_values(records: Array, columns: int, kind: Type, stored: Bytes) -> None:
    tiles = len(records)
    # Values of 16 bits are moved as they are.
    values = stored.view("<u2") if kind in (Type.F16, Type.BF16) else dequantized(stored, kind)
    values = values.reshape(tiles, TILE, columns)
    whole = columns // GROUP
    grouped = values[..., : whole * GROUP].reshape(tiles, TILE, whole, GROUP)
    records["values"][:, :whole] = grouped.transpose(0, 2, 3, 1)
    if whole * GROUP < columns:
        records["values"][:, whole, : columns - whole * GROUP] = values[..., whole * GROUP :].transpose(0, 2, 1)
