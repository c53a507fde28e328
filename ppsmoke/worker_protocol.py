"""The wire between a node and its worker, and how it is written: pure, no IO.

worker_decoder takes messages off it, worker_requests checks what they ask for.

Three forms carry the same messages, and a reply takes the form of its request:

* `JSON`: one JSON object a line; hidden rows as `hidden_b64`. For hands and tests.
* `RAW`: one JSON line with `hidden_bytes: n`, then n raw bytes. A request without hidden rows asks for this form with
  `hidden_bytes: 0`.
* `BINARY`: a fixed header (see `FRAME_HEADER`), the request id, the payload. Accepted once `configure` said
  `frames: binary`; only the four step ops have it. Its first byte never begins a JSON text, so lines and frames mix.

Hidden rows are little-endian float32, `seq_len * hidden_dim` values, row after row. Errors are always a JSON line,
`{"error": {"code", "message", "remedy"}}`.

A worker that a node supervises also writes lines that answer nothing while it loads and compiles, some four a second:
`{"status": "progress", "state": "loading" or "compiling", "done", "total", "unit": "blocks" or "kernels"}`.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.roles import Role

HIDDEN_WIDTH_BYTES = 4
BASE_LINE_BYTES = 64 * 1024
MAX_U32 = 2**32 - 1
MAX_REQUEST_ID_BYTES = 256

# magic, version, op, flags, request id bytes, reserved, position, seq_len, payload bytes, seed, temperature, top_p
FRAME_HEADER = struct.Struct("<BBBBHHIIIQdd")
FRAME_MAGIC = 0xB1
FRAME_VERSION = 1
FLAG_PREFILL, FLAG_LAST = 1, 2
REPLY_HIDDEN, REPLY_TOKEN = 0x81, 0x82


class Form(Enum):
    JSON = "json"
    RAW = "raw"
    BINARY = "binary"


class Op(StrEnum):
    CONFIGURE = "configure"
    EMBED_AND_FORWARD = "embed_and_forward"
    DECODE_STEP = "decode_step"
    FORWARD_RANGE = "forward_range"
    FORWARD_AND_SAMPLE = "forward_and_sample"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    RESET = "reset"
    SHUTDOWN = "shutdown"


STEP_OPS = (Op.EMBED_AND_FORWARD, Op.DECODE_STEP, Op.FORWARD_RANGE, Op.FORWARD_AND_SAMPLE)
TOKEN_OPS = (Op.EMBED_AND_FORWARD, Op.DECODE_STEP)
BINARY_OPS = {1: Op.EMBED_AND_FORWARD, 2: Op.DECODE_STEP, 3: Op.FORWARD_RANGE, 4: Op.FORWARD_AND_SAMPLE}
BINARY_CODES = {op: code for code, op in BINARY_OPS.items()}

_ANY_ROLE = (Op.CONFIGURE, Op.RESET, Op.SHUTDOWN)
ROLE_OPS: Mapping[Role, frozenset[Op]] = {
    Role.FIRST: frozenset(
        (*_ANY_ROLE, Op.EMBED_AND_FORWARD, Op.DECODE_STEP, Op.TOKENIZE, Op.DETOKENIZE),
    ),
    Role.MIDDLE: frozenset((*_ANY_ROLE, Op.FORWARD_RANGE)),
    Role.LAST: frozenset((*_ANY_ROLE, Op.FORWARD_AND_SAMPLE, Op.TOKENIZE, Op.DETOKENIZE)),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How Last picks a token. `temperature` 0 is greedy; `top_p` in (0, 1]; `seed` in [0, 2**63)."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Step:
    """One step op. `tokens` for the ops of First, `hidden` (seq_len * hidden_dim float32) for the others."""

    op: Op
    request_id: str
    position: int
    seq_len: int
    is_prefill: bool
    tokens: tuple[int, ...] = ()
    hidden: bytes = b""
    sampling: Sampling = GREEDY
    last: bool = True


@dataclass(frozen=True, slots=True)
class StepReply:
    """`hidden` for First and Middle. Last has none, and no `token_id` either when more of the prompt follows."""

    request_id: str
    seq_len: int
    hidden: bytes | None = None
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What a decoder took off the wire, whatever its form. `hidden` is None when the message carried no such field."""

    fields: dict[str, Any]
    hidden: bytes | None
    form: Form


def line_limit_for(context: int, hidden_dim: int) -> int:
    """The longest line worth keeping: a whole context as base64 rows or as token ids, plus room for the fields."""
    return BASE_LINE_BYTES + context * (16 + hidden_dim * HIDDEN_WIDTH_BYTES * 4 // 3)


def encode_step(step: Step, form: Form) -> bytes:
    """A step request on the wire."""
    if form is Form.BINARY:
        code = BINARY_CODES[step.op]
        payload = _pack_tokens(step.tokens) if step.op in TOKEN_OPS else step.hidden
        flags = (FLAG_PREFILL if step.is_prefill else 0) | (FLAG_LAST if step.last else 0)
        return _frame(code, flags, step.request_id, step.position, step.seq_len, payload, step.sampling)
    fields: dict[str, Any] = {"op": step.op.value, "request_id": step.request_id, "position": step.position}
    if step.op is Op.EMBED_AND_FORWARD:
        fields["tokens"] = list(step.tokens)
    elif step.op is Op.DECODE_STEP:
        fields["token"] = step.tokens[0]
    else:
        fields.update(seq_len=step.seq_len, is_prefill=step.is_prefill)
    if step.op is Op.FORWARD_AND_SAMPLE:
        sampling = step.sampling
        fields["sampling"] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
        }
        fields["last"] = step.last
    hidden = None if step.op in TOKEN_OPS else step.hidden
    return _line_with_hidden(fields, hidden, form)


def encode_step_reply(reply: StepReply, form: Form) -> bytes:
    if form is Form.BINARY:
        if reply.hidden is not None:
            return _frame(REPLY_HIDDEN, 0, reply.request_id, 0, reply.seq_len, reply.hidden, GREEDY)
        tokens = () if reply.token_id is None else (reply.token_id,)
        return _frame(REPLY_TOKEN, 0, reply.request_id, 0, reply.seq_len, _pack_tokens(tokens), GREEDY)
    if reply.hidden is None:
        return encode_line({"request_id": reply.request_id, "token_id": reply.token_id})
    return _line_with_hidden({"request_id": reply.request_id, "seq_len": reply.seq_len}, reply.hidden, form)


def encode_line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def error_fields(error: PpError) -> dict[str, Any]:
    """The `error` object of a reply, and the rest of a fatal line."""
    fields: dict[str, Any] = {"code": error.code, "message": error.what}
    if error.remedy is not None:
        fields["remedy"] = error.remedy
    return fields


def _line_with_hidden(fields: dict[str, Any], hidden: bytes | None, form: Form) -> bytes:
    if form is Form.RAW:
        return encode_line({**fields, "hidden_bytes": len(hidden or b"")}) + (hidden or b"")
    if hidden is not None:
        fields = {**fields, "hidden_b64": base64.b64encode(hidden).decode()}
    return encode_line(fields)


def _frame(
    code: int, flags: int, request_id: str, position: int, seq_len: int, payload: bytes, sampling: Sampling
) -> bytes:
    raw_id = request_id.encode()
    return b"".join(
        (
            FRAME_HEADER.pack(
                FRAME_MAGIC,
                FRAME_VERSION,
                code,
                flags,
                len(raw_id),
                0,
                position,
                seq_len,
                len(payload),
                sampling.seed,
                sampling.temperature,
                sampling.top_p,
            ),
            raw_id,
            payload,
        )
    )


def _pack_tokens(tokens: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)
