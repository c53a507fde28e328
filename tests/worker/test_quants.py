"""Quants taken apart stand for exactly what the gguf package makes of the stored bytes."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from ppsmoke_worker.quants import TAKE_APART, weights

from ppsmoke.ggml_types import GgmlType
from ppsmoke.packed_weights import CENTRED, HALVES, MINIMUM, WIDE, bits_of, format_of

# Where the float16 of a block lie; all other bytes may be anything.
SCALES_AT = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}


def random_rows(kind: GgmlType, rows: int, blocks: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    stored = rng.integers(0, 256, (rows, blocks, GGML_QUANT_SIZES[GGMLQuantizationType(kind)][1]), dtype=np.uint8)
    for at in SCALES_AT[kind.name]:
        scales = rng.uniform(-0.1, 0.1, (rows, blocks, 1)).astype(np.float16)
        stored[..., at : at + 2] = scales.view(np.uint8)
    return stored.reshape(rows, -1)


def test_every_type_that_is_taken_apart_is_tested() -> None:
    assert sorted(kind.name for kind in TAKE_APART) == sorted(SCALES_AT)


@pytest.mark.parametrize("name", SCALES_AT)
def test_the_pieces_stand_for_exactly_the_stored_weights(name: str) -> None:
    kind = GgmlType[name]
    stored = random_rows(kind, 5, 4)
    assert np.array_equal(weights(stored, kind), dequantize(stored, GGMLQuantizationType(kind)))


@pytest.mark.parametrize("name", SCALES_AT)
def test_the_pieces_are_what_the_format_says(name: str) -> None:
    kind = GgmlType[name]
    quants, format_ = TAKE_APART[kind](random_rows(kind, 5, 4)), format_of(kind)
    assert quants.values.max() < 1 << bits_of(format_)
    assert quants.scales.dtype == (np.float32 if format_ & WIDE else np.float16)
    assert quants.scales.shape[-1] == (2 if format_ & HALVES else 1)
    assert (quants.minimums is None) == (not format_ & MINIMUM)
    assert not (format_ & MINIMUM and format_ & CENTRED)
