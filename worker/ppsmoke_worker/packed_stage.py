"""A stage's weights in one piece of memory, in the order of use, and the tables by which the C kernels find them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ppsmoke.gguf_file import GgufFile
from ppsmoke.model_facts import ModelFacts
from ppsmoke.packed_weights import GROUP, TILE, format_of, packed_bytes
from ppsmoke_worker.memory import Region
from ppsmoke_worker.opened_model import row_order
from ppsmoke_worker.packing import pack
from ppsmoke_worker.stage_layout import Block, Matrix

_ALIGNMENT = 64

Order = NDArray[np.int64] | None


class PackedStage:
    """All of it lies in `region`."""

    def __init__(self, gguf: GgufFile, facts: ModelFacts, names: tuple[str, ...]) -> None:
        """`names` are the tensors that will be asked for."""
        self._gguf = gguf
        self._facts = facts
        sizes = (_aligned(self._bytes_of(name)) for name in names)
        self.region = Region(sum(sizes), huge=True)
        self._used = 0

    def add_blocks(self, start: int, end: int, loaded: Callable[[int], None]) -> ctypes.Array[Block]:
        """`loaded` hears how many are in memory, after each."""
        blocks = (Block * (end - start))()
        for place, index in enumerate(range(start, end)):
            blocks[place] = self._block(f"blk.{index}.")
            loaded(place + 1)
        return blocks

    def add_head(self) -> tuple[int, Matrix]:
        name = "token_embd.weight" if self._facts.tied_head else "output.weight"
        return self._vector("output_norm.weight"), self._matrix(name)

    def _block(self, prefix: str) -> Block:
        facts = self._facts
        queries, keys = row_order(facts, facts.num_heads), row_order(facts, facts.num_kv_heads)
        block = Block(
            attention_norm=self._vector(f"{prefix}attn_norm.weight"),
            query=self._matrix(f"{prefix}attn_q.weight", queries),
            key=self._matrix(f"{prefix}attn_k.weight", keys),
            value=self._matrix(f"{prefix}attn_v.weight"),
            output=self._matrix(f"{prefix}attn_output.weight"),
            ffn_norm=self._vector(f"{prefix}ffn_norm.weight"),
            gate=self._matrix(f"{prefix}ffn_gate.weight"),
            up=self._matrix(f"{prefix}ffn_up.weight"),
            down=self._matrix(f"{prefix}ffn_down.weight"),
        )
        if facts.qkv_bias:
            block.query_bias = self._vector(f"{prefix}attn_q.bias", queries)
            block.key_bias = self._vector(f"{prefix}attn_k.bias", keys)
            block.value_bias = self._vector(f"{prefix}attn_v.bias")
        if facts.qk_norm:
            block.query_norm = self._vector(f"{prefix}attn_q_norm.weight")
            block.key_norm = self._vector(f"{prefix}attn_k_norm.weight")
        return block

    def _matrix(self, name: str, order: Order = None) -> Matrix:
        tensor = self._gguf.tensors[name]
        columns, rows = tensor.shape
        memory, address = self._take(packed_bytes(tensor))
        pack(self._gguf, name, order, memory)
        self._gguf.drop_pages()  # else the file would be in memory twice
        return Matrix(address, format_of(tensor.type), -(-rows // TILE), -(-columns // GROUP))

    def _vector(self, name: str, order: Order = None) -> int:
        values = self._gguf.dequantize(name)
        memory, address = self._take(self._bytes_of(name))
        memory.view(np.float32)[: len(values)] = values if order is None else values[order]
        return address

    def _bytes_of(self, name: str) -> int:
        tensor = self._gguf.tensors[name]
        # Vectors are read in whole tiles too.
        return packed_bytes(tensor) if len(tensor.shape) > 1 else -(-tensor.shape[0] // TILE) * TILE * 4

    def _take(self, nbytes: int) -> tuple[NDArray[np.uint8], int]:
        first, self._used = self._used, self._used + _aligned(nbytes)
        return self.region.bytes[first : first + nbytes], self.region.address + first


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
