"""What the server needs of whatever computes. An engine has one block range and knows no wire and no roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ppsmoke.worker_protocol import Sampling

Rows = NDArray[np.float32]  # (tokens, hidden_dim)


class Progress(Protocol):
    """Who hears how far an engine's making is. Called often: it costs next to nothing."""

    def __call__(
        self, state: Literal["loading", "compiling"], done: int, total: int, unit: Literal["blocks", "kernels"]
    ) -> None: ...


def unheard(state: Literal["loading", "compiling"], done: int, total: int, unit: Literal["blocks", "kernels"]) -> None:
    """Nobody hears."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`layer_end` is exclusive; `context` is the number of positions a request may hold.

    `progress` hears of the loading and compiling; it is no part of what makes two configurations equal.
    """

    model: str
    layer_start: int
    layer_end: int
    context: int
    device: str | None = None
    progress: Progress = field(default=unheard, compare=False)


class Vocabulary(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class Engine(Protocol):
    """`facts` has at least num_layers, hidden_dim, vocab_size, dtype_family and dtype_width_bytes.

    The caller checks positions and sizes; a request's first forward allocates its KV cache, `reset` frees it.
    """

    name: str
    device: str
    bytes_loaded: int
    load_s: float
    compile_s: float
    facts: Mapping[str, Any]

    @property
    def vocabulary(self) -> Vocabulary: ...

    def embed(self, tokens: Sequence[int]) -> Rows:
        """Embedding rows; raises BadPayload for an id outside the vocabulary."""
        ...

    def forward(self, request_id: str, rows: Rows, position: int, is_prefill: bool) -> Rows:
        """Rows at `position`, `position + 1`, ... through the range."""
        ...

    def next_token(self, request_id: str, rows: Rows, position: int, sampling: Sampling) -> int:
        """The token after the last of `rows`, which is at `position`; only where the range ends the model."""
        ...

    def reset(self, request_id: str | None) -> None:
        """Forget one request, or all."""
        ...

    def close(self) -> None: ...
