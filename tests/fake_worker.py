"""A worker in a few lines, for tests of who calls it: rows that tell on whoever loses, repeats or reorders them.

A row is (token, position, stages passed) as int32, padded to the hidden size. The token after a prefix is the stub
model's, so `stub_tokens` says what a chain must produce.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from ppsmoke.errors import WorkerFailed
from ppsmoke.objects import HEADER, StreamObject
from ppsmoke.step_frames import HIDDEN, TOKEN, Reply, decode_request, token_reply
from ppsmoke.stub_model import StubModel, fold_prefix, token_after
from ppsmoke.worker_protocol import Op, Sampling, Step

STUB = StubModel(eos_after=0)
ROW_BYTES = 16 * 4
_ROW = struct.Struct("<iii52x")


def rows(tokens: Sequence[int], position: int, passed: int) -> bytes:
    return b"".join(_ROW.pack(token, position + offset, passed) for offset, token in enumerate(tokens))


class FakeWorker:
    """One stage's worker; `calls` has (op, arguments) in order, `error` is raised by the next step if set."""

    def __init__(self, stage_index: int, stub: StubModel = STUB) -> None:
        self.stage_index = stage_index
        self.stub = stub
        self.calls: list[tuple[object, ...]] = []
        self.error: Exception | None = None
        self._prefix: dict[str, list[int]] = {}
        self._generated: dict[str, int] = {}
        self._step: Step | None = None

    @property
    def open_requests(self) -> list[str]:
        return list(self._prefix)

    def ask(self, prefix: bytes, record: bytes) -> None:
        assert self._step is None, "a step at a time"
        end = HEADER.size
        self._step = decode_request(prefix + record[:end], record[end:], ROW_BYTES // 4)

    def answer(self) -> Reply:
        step, self._step = self._step, None
        assert step is not None
        request_id, position = step.request_id, step.position
        match step.op:
            case Op.EMBED_AND_FORWARD:
                hidden = self.embed_and_forward(request_id, step.tokens, position)
            case Op.DECODE_STEP:
                hidden = self.decode_step(request_id, step.tokens[0], position)
            case Op.FORWARD_RANGE:
                hidden = self.forward_range(request_id, step.hidden, position, step.seq_len, step.is_prefill)
            case _:
                token = self.forward_and_sample(
                    request_id, step.hidden, position, step.seq_len, step.sampling, step.last, step.is_prefill
                )
                return Reply(TOKEN, 0.0, 0.0, token_reply(token, 0.0, 0.0)[1])
        return Reply(HIDDEN, 0.0, 0.0, hidden)

    def embed_and_forward(self, request_id: str, tokens: Sequence[int], position: int) -> bytes:
        self._enter("embed_and_forward", request_id, tuple(tokens), position)
        self._extend(request_id, tokens, position)
        return rows(tokens, position, 1)

    def decode_step(self, request_id: str, token: int, position: int) -> bytes:
        self._enter("decode_step", request_id, token, position)
        self._extend(request_id, [token], position)
        return rows([token], position, 1)

    def forward_range(self, request_id: str, hidden: bytes, position: int, seq_len: int, is_prefill: bool) -> bytes:
        self._enter("forward_range", request_id, position, seq_len, is_prefill)
        tokens = self._read(hidden, position, seq_len)
        self._extend(request_id, tokens, position)
        return rows(tokens, position, self.stage_index + 1)

    def forward_and_sample(
        self,
        request_id: str,
        hidden: bytes,
        position: int,
        seq_len: int,
        sampling: Sampling,
        last: bool,
        is_prefill: bool,
    ) -> int | None:
        self._enter("forward_and_sample", request_id, position, seq_len, sampling, last, is_prefill)
        self._extend(request_id, self._read(hidden, position, seq_len), position)
        if not last:
            return None
        digest = 0
        for at, token in enumerate(self._prefix[request_id]):
            digest = fold_prefix(digest, token, at)
        generated = self._generated.setdefault(request_id, 0)
        self._generated[request_id] += 1
        return token_after(digest, generated, self.stub, sampling.seed)

    def reset(self, request_id: str | None = None) -> None:
        self.calls.append(("reset", request_id))
        if request_id is None:
            self._prefix.clear()
            self._generated.clear()
        else:
            self._prefix.pop(request_id, None)
            self._generated.pop(request_id, None)

    def _enter(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def _read(self, hidden: bytes, position: int, seq_len: int) -> list[int]:
        found = list(_ROW.iter_unpack(hidden))
        tokens = [token for token, _, _ in found]
        if hidden != rows(tokens, position, self.stage_index) or len(found) != seq_len:
            raise WorkerFailed(f"stage {self.stage_index} was given rows {found}, not {seq_len} from {position}")
        return tokens

    def _extend(self, request_id: str, tokens: Sequence[int], position: int) -> None:
        prefix = self._prefix.setdefault(request_id, [])
        if len(prefix) != position:
            raise WorkerFailed(f"stage {self.stage_index} has {len(prefix)} rows, not {position}")
        prefix += tokens


class Inbox:
    """A neighbour that takes what it is sent; `objects` has all of it."""

    def __init__(self, objects: list[StreamObject]) -> None:
        self.objects = objects
        self._coming: StreamObject | None = None

    def prepare(self, obj: StreamObject) -> None:
        self._coming = obj

    def send(self, payload: bytes) -> None:
        assert self._coming is not None
        self.objects.append(replace(self._coming, payload=payload))
        self._coming = None
