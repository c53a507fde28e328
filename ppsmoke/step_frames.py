"""The binary frames of the step socket between a node and its worker: pure codec, no IO.

The layout is that of `Form.BINARY` (see worker_protocol): a fixed header, the request id, the payload. On the step
socket nothing else travels: requests are the four step ops, one at a time, and each has one reply. In a reply the two
real numbers of the header are readings of the machine's monotonic clock: when the engine began and when it was done.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import BadPayload, MalformedRequest, PpError
from ppsmoke.worker_protocol import (
    BINARY_CODES,
    BINARY_OPS,
    FLAG_LAST,
    FLAG_PREFILL,
    FRAME_HEADER,
    FRAME_MAGIC,
    FRAME_VERSION,
    HIDDEN_WIDTH_BYTES,
    MAX_REQUEST_ID_BYTES,
    REPLY_HIDDEN,
    REPLY_TOKEN,
    TOKEN_OPS,
    Op,
    Sampling,
    Step,
    error_fields,
)

REPLY_ERROR = 0x83
_TOKEN = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Head:
    """A frame's header. `first` and `second` are temperature and top_p of a request, the clock readings of a reply."""

    code: int
    flags: int
    id_bytes: int
    position: int
    seq_len: int
    payload_bytes: int
    seed: int
    first: float
    second: float


def decode_head(header: bytes | bytearray | memoryview, payload_limit: int) -> Head:
    """Raises MalformedRequest for what is no frame, or one with more than `payload_limit` bytes of payload."""
    magic, version, code, flags, id_bytes, _, position, seq_len, size, seed, first, second = FRAME_HEADER.unpack(header)
    if magic != FRAME_MAGIC or version != FRAME_VERSION:
        raise MalformedRequest(f"not a step frame of this version (magic {magic:#04x}, version {version})")
    if id_bytes > MAX_REQUEST_ID_BYTES or size > payload_limit:
        raise MalformedRequest(f"a step frame of {id_bytes} + {size} bytes is over the limit of {payload_limit}")
    return Head(code, flags, id_bytes, position, seq_len, size, seed, first, second)


def encode_request(step: Step) -> tuple[bytes, bytes]:
    """(header and request id, payload) of a step."""
    payload = struct.pack(f"<{len(step.tokens)}I", *step.tokens) if step.op in TOKEN_OPS else step.hidden
    flags = (FLAG_PREFILL if step.is_prefill else 0) | (FLAG_LAST if step.last else 0)
    sampling = step.sampling
    raw_id = step.request_id.encode()
    head = FRAME_HEADER.pack(
        FRAME_MAGIC, FRAME_VERSION, BINARY_CODES[step.op], flags, len(raw_id), 0, step.position, step.seq_len,
        len(payload), sampling.seed, sampling.temperature, sampling.top_p,
    )  # fmt: skip
    return head + raw_id, payload


def decode_request(head: Head, raw_id: bytes, payload: bytes, hidden_dim: int) -> Step:
    """The step of a request frame; raises MalformedRequest or BadPayload."""
    op = BINARY_OPS.get(head.code)
    if op is None:
        raise MalformedRequest(f"a step frame of op {head.code} is not known")
    try:
        request_id = raw_id.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("a step frame's request id is not UTF-8") from None
    if not request_id or not head.seq_len:
        raise MalformedRequest("a step frame without a request id or without positions")
    width = 1 if op in TOKEN_OPS else hidden_dim
    if len(payload) != head.seq_len * width * HIDDEN_WIDTH_BYTES:
        what = "tokens" if op in TOKEN_OPS else f"rows of {hidden_dim} float32"
        raise BadPayload(f"{len(payload)} bytes where {head.seq_len} {what} were announced")
    tokens: tuple[int, ...] = ()
    if op in TOKEN_OPS:
        tokens, payload = struct.unpack(f"<{head.seq_len}I", payload), b""
    if op is Op.DECODE_STEP and head.seq_len != 1:
        raise BadPayload(f"decode_step takes one token, not {head.seq_len}")
    return Step(
        op, request_id, head.position, head.seq_len, bool(head.flags & FLAG_PREFILL), tokens, payload,
        Sampling(head.first, head.second, head.seed), bool(head.flags & FLAG_LAST),
    )  # fmt: skip


def hidden_reply(size: int, seq_len: int, began: float, done: float) -> bytes:
    """The header of a reply of `size` bytes of hidden rows."""
    return _reply(REPLY_HIDDEN, size, seq_len, began, done)


def token_reply(token: int | None, seq_len: int, began: float, done: float) -> tuple[bytes, bytes]:
    """(header, payload) of Last's reply; without a token when more of the prompt follows."""
    payload = b"" if token is None else _TOKEN.pack(token)
    return _reply(REPLY_TOKEN, len(payload), seq_len, began, done), payload


def error_reply(error: PpError) -> tuple[bytes, bytes]:
    payload = json.dumps(error_fields(error)).encode()
    return _reply(REPLY_ERROR, len(payload), 0, 0.0, 0.0), payload


def decode_token(payload: bytes) -> int | None:
    """The token of a REPLY_TOKEN; raises MalformedRequest."""
    if not payload:
        return None
    if len(payload) != _TOKEN.size:
        raise MalformedRequest(f"a token reply of {len(payload)} bytes")
    return int(_TOKEN.unpack(payload)[0])


def decode_error(payload: bytes) -> Mapping[str, Any]:
    """The `{code, message, remedy}` object of a REPLY_ERROR; raises MalformedRequest."""
    try:
        fields = json.loads(payload)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise MalformedRequest("an error reply that is no JSON object")
    return fields


def _reply(code: int, size: int, seq_len: int, began: float, done: float) -> bytes:
    return FRAME_HEADER.pack(FRAME_MAGIC, FRAME_VERSION, code, 0, 0, 0, 0, seq_len, size, 0, began, done)
