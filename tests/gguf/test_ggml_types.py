"""Our table of tensor types says what the gguf package says."""

from __future__ import annotations

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ppsmoke.ggml_types import BLOCKS, GgmlType


def test_numbers_and_names_are_those_of_the_format() -> None:
    theirs = {kind.name: int(kind) for kind in GGMLQuantizationType}
    assert {kind.name: int(kind) for kind in GgmlType}.items() <= theirs.items()


def test_blocks_are_as_large_as_the_format_says() -> None:
    assert {int(kind): size for kind, size in BLOCKS.items()} == {
        int(kind): GGML_QUANT_SIZES[GGMLQuantizationType(kind)] for kind in BLOCKS
    }
