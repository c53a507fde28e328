"""What every engine with a model file needs of it: its facts, embedding rows, the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsmoke.errors import BadPayload, PlanInvalid
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import ModelFacts, read_model_facts
from ppsmoke.worker_protocol import HIDDEN_WIDTH_BYTES
from ppsmoke_worker.engine import EngineConfig, Rows, Vocabulary
from ppsmoke_worker.quants import TAKE_APART, weights


def count_layers(model: str) -> int:
    """The number of blocks of a model; raises what opening it raises."""
    with open_gguf(Path(model)) as gguf:
        return read_model_facts(gguf).num_layers


class OpenedModel:
    """Raises what opening a model raises, and PlanInvalid for a range that is not in it."""

    def __init__(self, config: EngineConfig) -> None:
        self.gguf = open_gguf(Path(config.model))
        self.facts = read_model_facts(self.gguf)
        if not 0 <= config.layer_start < config.layer_end <= self.facts.num_layers:
            raise PlanInvalid(
                f"blocks [{config.layer_start}, {config.layer_end}) are not in a model of {self.facts.num_layers}"
            )
        self.is_last = config.layer_end == self.facts.num_layers
        self._is_first = config.layer_start == 0
        self._vocabulary: Vocabulary | None = None

    @property
    def wire_facts(self) -> dict[str, Any]:
        return {**asdict(self.facts), "dtype_family": "float", "dtype_width_bytes": HIDDEN_WIDTH_BYTES}

    @property
    def vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            # Half a second and 30 MB that no stage of a run needs: it has token ids only.
            from ppsmoke.tokenizer import Tokenizer

            self._vocabulary = Tokenizer.from_gguf(self.gguf.metadata)
        return self._vocabulary

    def embed(self, tokens: Sequence[int]) -> Rows:
        if max(tokens) >= self.facts.vocab_size:
            raise BadPayload(f"token {max(tokens)} is outside the vocabulary of {self.facts.vocab_size}")
        name = "token_embd.weight"
        kind = self.gguf.tensors[name].type
        if kind in TAKE_APART:  # the gguf package, which knows them too, would be 60 ms and 10 MB more
            return weights(self.gguf.raw_rows(name, tokens), kind)
        return self.gguf.dequantize_rows(name, tokens)

    def weights_are_read(self) -> None:
        """Lets go of the file, but for the embedding of a first stage."""
        self.gguf.drop_pages()
        if not self._is_first:
            self.gguf.close()


def rope_table(model: OpenedModel, positions: int) -> NDArray[np.float32]:
    """(positions, rope_dim): the cosines of each position, then its sines."""
    facts = model.facts
    frequencies = facts.rope_theta ** (-np.arange(0, facts.rope_dim, 2) / facts.rope_dim)
    if facts.rope_freqs:
        frequencies = frequencies / model.gguf.dequantize("rope_freqs.weight")
    angles = np.arange(positions)[:, None] * frequencies[None]
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def row_order(facts: ModelFacts, heads: int) -> NDArray[np.int64] | None:
    """llama GGUFs rotate neighbours; their rows are put so that dimension i pairs with i + rope_dim / 2. None: as they
    are."""
    if facts.rope_neox:
        return None
    within = np.arange(facts.head_dim)
    rotated = within[: facts.rope_dim].reshape(-1, 2).T.reshape(-1)
    within = np.concatenate([rotated, within[facts.rope_dim :]])
    return (np.arange(heads)[:, None] * facts.head_dim + within[None]).reshape(-1)
