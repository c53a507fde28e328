"""From a GGUF's tensors to what a block computes with: dequantised, stacked, rows in the order of halves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Tensor

from ppsmoke.errors import UnsupportedModel
from ppsmoke_worker.block import BlockWeights
from ppsmoke_worker.buffers import DeviceBuffer
from ppsmoke_worker.opened_model import OpenedModel, rope_table, row_order

_VALUES_A_PIECE = 1 << 22
_LARGEST_F16 = float(np.finfo(np.float16).max)


class WeightLoader:
    """Matrices in `dtype`; norms, biases and tables always float32. Reads only the tensors it is asked for."""

    def __init__(self, model: OpenedModel, on_cpu: bool, dtype: type[np.floating[Any]]) -> None:
        self._model = model
        self._gguf = model.gguf
        self._facts = model.facts
        self._on_cpu = on_cpu
        self._dtype = dtype

    def block(self, index: int) -> BlockWeights:
        facts, prefix = self._facts, f"blk.{index}"
        q_order, k_order = row_order(facts, facts.num_heads), row_order(facts, facts.num_kv_heads)
        bias = None
        if facts.qkv_bias:
            q, k, v = (self._gguf.dequantize(f"{prefix}.attn_{name}.bias") for name in "qkv")
            bias = self._vector(np.concatenate([_in_order(q, q_order), _in_order(k, k_order), v]))
        attn = f"{prefix}.attn_"
        return BlockWeights(
            attn_norm=self._named_vector(f"{attn}norm.weight"),
            qkv=self._matrix((f"{attn}q.weight", q_order), (f"{attn}k.weight", k_order), (f"{attn}v.weight", None)),
            attn_output=self._matrix((f"{attn}output.weight", None)),
            ffn_norm=self._named_vector(f"{prefix}.ffn_norm.weight"),
            gate_up=self._matrix((f"{prefix}.ffn_gate.weight", None), (f"{prefix}.ffn_up.weight", None)),
            down=self._matrix((f"{prefix}.ffn_down.weight", None)),
            qkv_bias=bias,
            q_norm=self._named_vector(f"{attn}q_norm.weight") if facts.qk_norm else None,
            k_norm=self._named_vector(f"{attn}k_norm.weight") if facts.qk_norm else None,
        )

    def head(self) -> dict[str, Tensor]:
        name = "token_embd.weight" if self._facts.tied_head else "output.weight"
        return {"output_norm": self._named_vector("output_norm.weight"), "head": self._matrix((name, None))}

    def tables(self, positions: int) -> tuple[Tensor, Tensor]:
        """(positions, rope_dim) cosines and sines, and the positions themselves."""
        return self._vector(rope_table(self._model, positions)), self._vector(np.arange(positions, dtype=np.float32))

    def _named_vector(self, name: str) -> Tensor:
        return self._vector(self._gguf.dequantize(name))

    def _vector(self, values: NDArray[np.float32]) -> Tensor:
        buffer = DeviceBuffer(values.shape, self._on_cpu)
        buffer.write(values)
        return buffer.tensor

    def _matrix(self, *parts: tuple[str, NDArray[np.int64] | None]) -> Tensor:
        columns = self._gguf.tensors[parts[0][0]].shape[0]
        rows = sum(self._gguf.tensors[name].shape[1] for name, _ in parts)
        buffer = DeviceBuffer((rows, columns), self._on_cpu, self._dtype)
        buffer.fill(self._pieces(parts))
        return buffer.tensor

    def _pieces(self, parts: tuple[tuple[str, NDArray[np.int64] | None], ...]) -> Iterator[NDArray[np.float32]]:
        for name, order in parts:
            columns, rows = self._gguf.tensors[name].shape
            wanted = np.arange(rows) if order is None else order
            step = max(1, _VALUES_A_PIECE // columns)
            for first in range(0, rows, step):
                piece = self._gguf.dequantize_rows(name, wanted[first : first + step])  # type: ignore[arg-type]
                if self._dtype is np.float16 and piece.size and np.abs(piece).max() > _LARGEST_F16:
                    raise UnsupportedModel(
                        f"the tensor {name!r} has values that do not fit into f16", remedy="use --weights f32"
                    )
                yield piece


def _in_order(values: NDArray[np.float32], order: NDArray[np.int64] | None) -> NDArray[np.float32]:
    return values if order is None else values[order]
