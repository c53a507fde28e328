"""The stub engine: no tinygrad, no file, and rows that tell on whoever loses, repeats, reorders or corrupts them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsmoke.errors import BadPayload, PlanInvalid, WorkerFailed
from ppsmoke.stub_model import (
    STUB_EOS_TOKEN,
    StubModel,
    fold_prefix,
    parse_stub_model,
    stub_decode,
    stub_encode,
    token_after,
)
from ppsmoke.worker_protocol import HIDDEN_WIDTH_BYTES, Sampling
from ppsmoke_worker.engine import EngineConfig, Rows

_TOKEN, _POSITION, _BLOCKS, _PATTERN = 0, 1, 2, 3  # columns of a row; the pattern fills the rest


@dataclass(slots=True)
class _Prefix:
    digest: int = 0
    length: int = 0
    generated: int = 0


class StubVocabulary:
    def encode(self, text: str) -> list[int]:
        return stub_encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return stub_decode(tokens)


class StubEngine:
    """Rows are (token, position, blocks passed, pattern...), exact in float32; each block adds one to the third."""

    name = "stub"
    device = "STUB"
    compile_s = 0.0

    def __init__(self, config: EngineConfig, stage: int | None) -> None:
        started = time.monotonic()
        self.stub = parse_stub_model(config.model)
        if not 0 <= config.layer_start < config.layer_end <= self.stub.layers:
            raise PlanInvalid(
                f"blocks [{config.layer_start}, {config.layer_end}) are not in a model of {self.stub.layers}"
            )
        self._config = config
        self._faulty = self.stub.at_stage in (-1, stage)
        if self._faulty:
            self._load(config)
        if self.stub.load_fail and self._faulty:
            raise WorkerFailed("the stub model was told to fail while loading")
        self._prefixes: dict[str, _Prefix] = {}
        self._steps = 0
        self.vocabulary = StubVocabulary()
        self.bytes_loaded = (config.layer_end - config.layer_start) * self.stub.hidden * HIDDEN_WIDTH_BYTES
        self.facts: Mapping[str, Any] = stub_facts(self.stub)
        self.load_s = time.monotonic() - started

    def embed(self, tokens: Sequence[int]) -> Rows:
        rows = np.zeros((len(tokens), self.stub.hidden), np.float32)
        for row, token in zip(rows, tokens, strict=True):
            if token >= self.stub.vocab:
                raise BadPayload(f"token {token} is outside the vocabulary of {self.stub.vocab}")
            row[_TOKEN] = token
        return rows

    def forward(self, request_id: str, rows: Rows, position: int, is_prefill: bool) -> Rows:
        self._obey_faults()
        out = rows.copy()
        if self._config.layer_start == 0:
            for offset, row in enumerate(out):
                row[_POSITION] = position + offset
                row[_PATTERN:] = _pattern(int(row[_TOKEN]), position + offset, self.stub.hidden)
        prefix = self._prefixes.setdefault(request_id, _Prefix())
        if prefix.length != position:
            raise WorkerFailed(f"the stub has {prefix.length} rows of {request_id!r}, not {position}")
        digest = prefix.digest
        for offset, row in enumerate(out):
            _check_row(row, position + offset, self._config.layer_start)
            digest = fold_prefix(digest, int(row[_TOKEN]), position + offset)
        out[:, _BLOCKS] += self._config.layer_end - self._config.layer_start
        prefix.digest, prefix.length = digest, position + len(rows)
        return out

    def next_token(self, request_id: str, rows: Rows, position: int, sampling: Sampling) -> int:
        prefix = self._prefixes[request_id]
        seed = sampling.seed if sampling.temperature > 0 else 0
        token = token_after(prefix.digest, prefix.generated, self.stub, seed)
        prefix.generated += 1
        return token

    def reset(self, request_id: str | None) -> None:
        self._steps = 0
        if request_id is None:
            self._prefixes.clear()
        else:
            self._prefixes.pop(request_id, None)

    def close(self) -> None:
        self._prefixes.clear()

    def _load(self, config: EngineConfig) -> None:
        """Takes its time, block by block, as a file's would."""
        count = config.layer_end - config.layer_start
        for done in range(count if self.stub.load_ms else 0):
            config.progress("loading", done, count, "blocks")
            time.sleep(self.stub.load_ms / count / 1000)

    def _obey_faults(self) -> None:
        step, stub = self._steps, self.stub
        self._steps += 1
        if not self._faulty:
            return
        if stub.step_ms:
            time.sleep(stub.step_ms / 1000)
        if step == stub.fail_at:
            raise WorkerFailed(f"the stub model was told to fail at step {step}")
        if step == stub.hang_at:
            print(f"stub: hanging at step {step} as told", file=sys.stderr, flush=True)
            while True:
                time.sleep(3600)
        if step == stub.exit_at:
            print(f"stub: exiting at step {step} as told", file=sys.stderr, flush=True)
            os._exit(7)
        if step == stub.kill_at:
            print(f"stub: killing itself at step {step} as told", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def stub_facts(stub: StubModel) -> dict[str, Any]:
    """The facts a worker reports, as a GGUF's would be."""
    return {
        "architecture": "stub",
        "name": str(stub),
        "num_layers": stub.layers,
        "hidden_dim": stub.hidden,
        "vocab_size": stub.vocab,
        "context_length": stub.context,
        "dtype_family": "float",
        "dtype_width_bytes": HIDDEN_WIDTH_BYTES,
        "eos_token_ids": [STUB_EOS_TOKEN],
    }


def _pattern(token: int, position: int, hidden: int) -> Rows:
    columns = np.arange(hidden - _PATTERN, dtype=np.int64)
    return ((columns * 131 + token * 17 + position * 7919) % 65521).astype(np.float32)


def _check_row(row: Rows, position: int, blocks: int) -> None:
    if not np.isfinite(row).all() or row[_POSITION] != position or row[_BLOCKS] != blocks:
        raise WorkerFailed(
            f"a row says position {row[_POSITION]:g} after {row[_BLOCKS]:g} blocks; position {position} after "
            f"{blocks} blocks was due"
        )
    if not np.array_equal(row[_PATTERN:], _pattern(int(row[_TOKEN]), position, len(row))):
        raise WorkerFailed(f"the row of position {position} was changed on its way")
