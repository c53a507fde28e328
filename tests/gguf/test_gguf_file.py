from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import GgufMalformed, GgufTruncated, ModelNotFound, UsageError
from ppsmoke.gguf_file import SUPPORTED_TENSOR_TYPES, open_gguf
from ppsmoke.gguf_share import record_path

TYPES = [
    GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K", "IQ4_XS")
]


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda kind: kind.name)
def test_every_value_is_what_the_gguf_package_reads(tmp_path: Path, tensor_type: GGMLQuantizationType) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tensor_type=tensor_type, blocks=1)
    reference = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    with open_gguf(path) as gguf:
        assert set(gguf.tensors) == set(reference)
        for name, tensor in reference.items():
            values = gguf.dequantize(name)
            assert values.dtype == np.float32
            assert values.shape == tuple(reversed(tensor.shape.tolist()))
            np.testing.assert_array_equal(values, dequantize(tensor.data, tensor.tensor_type).reshape(values.shape))
        np.testing.assert_array_equal(
            gguf.dequantize_rows("token_embd.weight", [7, 0, 7]),
            gguf.dequantize("token_embd.weight")[[7, 0, 7]],
        )


@pytest.mark.parametrize("tensor_type", sorted(SUPPORTED_TENSOR_TYPES), ids=lambda kind: kind.name)
def test_every_supported_type_can_be_dequantised(tensor_type: GGMLQuantizationType) -> None:
    block_size, block_bytes = GGML_QUANT_SIZES[tensor_type]
    assert dequantize(np.zeros((2, block_bytes), np.uint8), tensor_type).shape == (2, block_size)


def test_bytes_touched_follows_what_is_asked_for(tmp_path: Path) -> None:
    with open_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", blocks=2)) as gguf:
        assert gguf.bytes_touched == 0
        embedding = gguf.tensors["token_embd.weight"]
        gguf.dequantize_rows("token_embd.weight", [1, 2])
        assert gguf.bytes_touched == 2 * embedding.nbytes // embedding.shape[1]
        before = gguf.bytes_touched
        assert gguf.raw("blk.0.ffn_up.weight").nbytes == gguf.tensors["blk.0.ffn_up.weight"].nbytes
        assert gguf.bytes_touched - before == gguf.tensors["blk.0.ffn_up.weight"].nbytes


@pytest.mark.parametrize("row", [-1, 1 << 30])
def test_rows_outside_the_tensor(tmp_path: Path, row: int) -> None:
    with (
        open_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", blocks=1)) as gguf,
        pytest.raises(IndexError, match="token_embd"),
    ):
        gguf.dequantize_rows("token_embd.weight", [0, row])


def test_a_file_without_write_permission_is_read_and_not_changed(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=1)
    path.chmod(0o444)
    before = path.read_bytes()
    with open_gguf(path) as gguf:
        view = gguf.raw("output_norm.weight")
        assert not view.flags.writeable
        gguf.dequantize("output_norm.weight")[:] = 0
    assert path.read_bytes() == before


def test_arrays_outlive_the_file(tmp_path: Path) -> None:
    with open_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", blocks=1)) as gguf:
        view, values = gguf.raw("output_norm.weight"), gguf.dequantize("output_norm.weight")
    assert view.view(np.float32).sum() == values.sum()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=1)
    before = len(os.listdir("/proc/self/fd"))
    with open_gguf(path):
        pass
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GgufTruncated):
        open_gguf(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_truncated_model_names_the_tensor(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=1)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GgufTruncated, match=r"tensor 'blk.0.ffn_down.weight' ends at byte") as caught:
        open_gguf(path)
    assert "fetch" in (caught.value.remedy or "")


def test_files_that_are_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no model file"):
        open_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelNotFound, match="is not a file"):
        open_gguf(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(GgufMalformed, match="is empty"):
        open_gguf(tmp_path / "empty.gguf")


def test_no_pipe_is_opened_in_place_of_a_model_or_of_what_is_known_of_its_share(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelNotFound, match="is not a file"):
        open_gguf(tmp_path / "pipe.gguf")
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    os.mkfifo(record_path(model))
    with pytest.raises(GgufMalformed, match=r"tiny\.gguf\.share cannot be read: it is no file"):
        open_gguf(model)


def test_a_split_model_equals_the_whole(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "whole.gguf", blocks=2)
    first = write_tiny_gguf(tmp_path / "split.gguf", blocks=2, split_max_tensors=9)
    assert first.name == "split-00001-of-00003.gguf"
    with open_gguf(whole) as one, open_gguf(first) as parts:
        assert len(parts.paths) == 3
        assert set(parts.tensors) == set(one.tensors)
        assert {tensor.part for tensor in parts.tensors.values()} == {0, 1, 2}
        assert parts.metadata["tokenizer.ggml.tokens"] == one.metadata["tokenizer.ggml.tokens"]
        for name in one.tensors:
            np.testing.assert_array_equal(parts.raw(name), one.raw(name))


def test_a_split_model_names_what_is_missing_or_misplaced(tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "split.gguf", blocks=2, split_max_tensors=9)
    second = first.with_name("split-00002-of-00003.gguf")
    third = first.with_name("split-00003-of-00003.gguf")
    with pytest.raises(UsageError, match="part 2 of 3") as usage:
        open_gguf(second)
    assert first.name in (usage.value.remedy or "")

    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(first.read_bytes())
    with pytest.raises(GgufMalformed, match=r"part 0 \(from 0\) of 3"):
        open_gguf(renamed)

    second_bytes = second.read_bytes()
    second.write_bytes(third.read_bytes())
    with pytest.raises(GgufMalformed, match=r"part 2 \(from 0\) of 3, its name and place say part 1"):
        open_gguf(first)
    second.write_bytes(second_bytes)
    second.unlink()
    third.unlink()
    with pytest.raises(ModelNotFound, match=f"2 of its 3 parts: {second.name}, {third.name}"):
        open_gguf(first)
