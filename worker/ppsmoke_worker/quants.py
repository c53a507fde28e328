"""GGUF's quantised types taken apart: small integers, scales, minimums, nothing rounded.

The layouts are those of ggml's block structures. Every function takes stored rows, (rows, bytes), and gives the values
as (rows, columns) and the scales as (rows, groups of 32 columns, parts of a group).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsmoke.ggml_types import GgmlType as Type
from ppsmoke.packed_weights import centre_of, format_of

Bytes = NDArray[np.uint8]
Scales = NDArray[np.floating[Any]]

_CENTRE = np.uint8(128)  # of the formats of 8 bits
_4 = np.uint8(4)
_IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


@dataclass(frozen=True, slots=True)
class Quants:
    """A weight is scale x (value - centre_of(format)) + minimum."""

    values: Bytes
    scales: Scales
    minimums: Scales | None = None


def weights(stored: Bytes, kind: Type) -> NDArray[np.float32]:
    """What the quants of a type in TAKE_APART stand for, (rows, columns)."""
    quants = TAKE_APART[kind](stored)
    values = quants.values.astype(np.float32) - np.float32(centre_of(format_of(kind)))
    product = values.reshape(*quants.scales.shape, -1) * quants.scales.astype(np.float32)[..., None]
    if quants.minimums is not None:
        product += quants.minimums.astype(np.float32)[..., None]
    return product.reshape(values.shape)


def q4_0(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 18)
    return _quants(_nibbles(blocks[..., 2:], 16), _f16(blocks, 0))


def q4_1(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 20)
    return _quants(_nibbles(blocks[..., 4:], 16), _f16(blocks, 0), _f16(blocks, 2))


def q5_0(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 22)
    values = _nibbles(blocks[..., 6:], 16) | _bits_of_words(blocks[..., 2:6]) << _4
    return _quants(values + (_CENTRE - np.uint8(16)), _f16(blocks, 0))


def q5_1(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 24)
    values = _nibbles(blocks[..., 8:], 16) | _bits_of_words(blocks[..., 4:8]) << _4
    return _quants(values, _f16(blocks, 0), _f16(blocks, 2))


def q8_0(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 34)
    return _quants(blocks[..., 2:] ^ _CENTRE, _f16(blocks, 0))


def iq4_nl(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 18)
    return _quants(_iq4_values(_nibbles(blocks[..., 2:], 16)), _f16(blocks, 0))


def iq4_xs(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 136)
    high = blocks[..., 2:4].view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = _nibbles_in_turn(blocks[..., 4:8])
    scales = _f32(blocks, 0) * ((low | high << _4).astype(np.float32) - 32)
    return _quants(_iq4_values(_nibbles(blocks[..., 8:], 16)), scales)


def q2_k(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 84)
    values = _fields(blocks[..., 16:80], 32, (0, 2, 4, 6), 3)
    scales, minimums = blocks[..., :16] & 15, blocks[..., :16] >> 4
    return _quants(values, _f32(blocks, 80) * scales, -_f32(blocks, 82) * minimums)


def q3_k(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 110)
    low = _fields(blocks[..., 32:96], 32, (0, 2, 4, 6), 3)
    high = _fields(blocks[..., :32], 32, range(8), 1)
    packed = blocks[..., 96:108]
    # 16 scales of 6 bits: the low 4 bits lie in 8 bytes, the low nibbles first, the high 2 in the 4 bytes behind them.
    scales = _fields(packed[..., :8], 8, (0, 4), 15) | _fields(packed[..., 8:], 4, (0, 2, 4, 6), 3) << _4
    values = (low | high << np.uint8(2)) + np.uint8(4)  # the quants go from -4 to 3
    return _quants(values, _f32(blocks, 108) * (scales.astype(np.float32) - 32))


def q4_k(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 144)
    return _quants(_fields(blocks[..., 16:], 32, (0, 4), 15), *_k_scales(blocks))


def q5_k(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 176)
    values = _fields(blocks[..., 48:], 32, (0, 4), 15) | _fields(blocks[..., 16:48], 32, range(8), 1) << _4
    return _quants(values, *_k_scales(blocks))


def q6_k(stored: Bytes) -> Quants:
    blocks = _blocks(stored, 210)
    low = _fields(blocks[..., :128], 64, (0, 4), 15)
    high = _fields(blocks[..., 128:192], 32, (0, 2, 4, 6), 3)
    values = (low | high << _4) + (_CENTRE - np.uint8(32))
    return _quants(values, _f32(blocks, 208) * blocks[..., 192:208].view(np.int8))


def _quants(values: Bytes, scales: Scales, minimums: Scales | None = None) -> Quants:
    """From values and scales by stored block."""
    rows = len(values)
    values = values.reshape(rows, -1)
    groups = values.shape[1] // 32
    if minimums is not None:
        minimums = minimums.reshape(rows, groups, -1)
    return Quants(values, scales.reshape(rows, groups, -1), minimums)


def _blocks(stored: Bytes, size: int) -> Bytes:
    return stored.reshape(len(stored), -1, size)


def _f16(blocks: Bytes, at: int) -> Scales:
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")


def _f32(blocks: Bytes, at: int) -> Scales:
    return _f16(blocks, at).astype(np.float32)


def _fields(packed: Bytes, run: int, shifts: Any, mask: int) -> Bytes:
    """Bit fields of bytes: for each run of bytes their first fields, then their second ones, and so on."""
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    fields: Bytes = runs >> np.array(list(shifts), np.uint8)[:, None] & np.uint8(mask)
    return fields.reshape(*packed.shape[:-1], -1)


def _nibbles(packed: Bytes, run: int) -> Bytes:
    return _fields(packed, run, (0, 4), 15)


def _nibbles_in_turn(packed: Bytes) -> Bytes:
    return _fields(packed, 1, (0, 4), 15)


def _bits_of_words(packed: Bytes) -> Bytes:
    """The 32 bits of four bytes, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")


def _iq4_values(indices: Bytes) -> Bytes:
    values: Bytes = (_IQ4_VALUES + 128).astype(np.uint8)[indices]
    return values


def _k_scales(blocks: Bytes) -> tuple[Scales, Scales]:
    """8 scales and 8 minimums of 6 bits in 12 bytes, times the block's two float16."""
    first, second, third = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << _4], axis=-1)
    minimums = np.concatenate([second & 63, third >> 4 | second >> 6 << _4], axis=-1)
    return _f32(blocks, 0) * scales, -_f32(blocks, 2) * minimums


TAKE_APART: Mapping[Type, Callable[[Bytes], Quants]] = {
    Type.Q4_0: q4_0,
    Type.Q4_1: q4_1,
    Type.Q5_0: q5_0,
    Type.Q5_1: q5_1,
    Type.Q8_0: q8_0,
    Type.Q2_K: q2_k,
    Type.Q3_K: q3_k,
    Type.Q4_K: q4_k,
    Type.Q5_K: q5_k,
    Type.Q6_K: q6_k,
    Type.IQ4_NL: iq4_nl,
    Type.IQ4_XS: iq4_xs,
}
