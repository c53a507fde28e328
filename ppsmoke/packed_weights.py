"""The formats in which the worker's C kernels keep matrices, by type; `formats.h` there has the layouts.

They stand here because the memory of a stage follows from them, before there is a worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from ppsmoke.ggml_types import GgmlType as Type
from ppsmoke.gguf_header import GgufTensor

TILE = 64  # rows that lie together
GROUP = 32  # columns that share a record
# Added to the number of bits of a value.
BFLOAT, CENTRED, MINIMUM, WIDE, HALVES = 0x100, 0x200, 0x400, 0x800, 0x1000

_FORMATS: Mapping[Type, int] = {
    Type.Q4_0: 4 | CENTRED,
    Type.Q4_1: 4 | MINIMUM,
    Type.Q5_0: 8 | CENTRED,
    Type.Q5_1: 8 | MINIMUM,
    Type.Q8_0: 8 | CENTRED,
    Type.Q2_K: 4 | MINIMUM | WIDE | HALVES,
    Type.Q3_K: 4 | CENTRED | WIDE | HALVES,
    Type.Q4_K: 4 | MINIMUM | WIDE,
    Type.Q5_K: 8 | MINIMUM | WIDE,
    Type.Q6_K: 8 | CENTRED | WIDE | HALVES,
    Type.IQ4_NL: 8 | CENTRED,
    Type.IQ4_XS: 8 | CENTRED | WIDE,
    Type.F16: 16,
    Type.BF16: 16 | BFLOAT,
}
_FLOAT32 = 32


def format_of(kind: Type) -> int:
    """float32 for types whose weights are no small integer times a scale."""
    return _FORMATS.get(kind, _FLOAT32)


def bits_of(format_: int) -> int:
    return format_ & 0xFF


def centre_of(format_: int) -> int:
    """The quant that stands for 0."""
    if not format_ & CENTRED:
        return 0
    return 8 if bits_of(format_) == 4 else 128


def record_bytes(format_: int) -> int:
    """Of TILE rows and GROUP columns."""
    bits = bits_of(format_)
    quants = TILE * GROUP * bits // 8
    if bits >= 16:
        return quants
    scales = TILE * (4 if format_ & WIDE else 2) * (2 if format_ & HALVES else 1)
    return quants + scales * (2 if format_ & MINIMUM else 1)


def packed_bytes(tensor: GgufTensor) -> int:
    """Of a matrix: whole tiles and groups."""
    columns, rows = tensor.shape
    return -(-rows // TILE) * -(-columns // GROUP) * record_bytes(format_of(tensor.type))
