"""The binary frames of the step socket between a node and its worker: pure codec, no IO.

A request is a prefix (u8 magic, version, op, zero; u32 zero; u64 seed; f64 temperature, top_p; little-endian) and then
the object record just as it came off the edge: the node adds what the run wants and need not take the record apart.
Requests are the four step ops, one at a time, and each has one reply: u8 magic, version, kind, zero; u32 payload bytes;
two f64 readings of the machine's monotonic clock, when the engine began and when it was done; the payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ppsmoke.errors import BadPayload, MalformedRequest, PpError
from ppsmoke.objects import HEADER, LAST_PART, PREFILL
from ppsmoke.worker_protocol import (
    BINARY_CODES,
    BINARY_OPS,
    GREEDY,
    HIDDEN_WIDTH_BYTES,
    TOKEN_OPS,
    Op,
    Sampling,
    Step,
    error_fields,
)

_MAGIC: Final = 0xB2
_VERSION: Final = 1
_PREFIX = struct.Struct("<BBBBIQdd")
REQUEST = struct.Struct(_PREFIX.format + HEADER.format.lstrip("<"))
"""A request up to its payload: the prefix and an object's header."""
REPLY = struct.Struct("<BBBBIdd")

HIDDEN: Final = 1
TOKEN: Final = 2
ERROR: Final = 3
_TOKEN = struct.Struct("<I")


class Reply(NamedTuple):
    """`kind` is HIDDEN, TOKEN or ERROR; `began` and `done` are clock readings in seconds."""

    kind: int
    began: float
    done: float
    payload: bytes


def request_prefix(op: Op, sampling: Sampling = GREEDY) -> bytes:
    """What goes before an object's record to make it a request."""
    code = BINARY_CODES[op]
    return _PREFIX.pack(_MAGIC, _VERSION, code, 0, 0, sampling.seed, sampling.temperature, sampling.top_p)


def request_payload_bytes(head: bytes | memoryview) -> int:
    """How many bytes of payload follow the REQUEST.size bytes of `head`; raises MalformedRequest."""
    if head[0] != _MAGIC or head[1] != _VERSION:
        raise MalformedRequest(f"not a step request of this version (magic {head[0]:#04x}, version {head[1]})")
    return int.from_bytes(head[REQUEST.size - 8 :], "little")


def decode_request(head: bytes | memoryview, payload: bytes, hidden_dim: int) -> Step:
    """The step of a request; raises MalformedRequest or BadPayload."""
    op, sampling = _decode_prefix(bytes(head[: _PREFIX.size]))
    _, _, flags, _, request, _, _, position, seq_len, size = HEADER.unpack_from(head, _PREFIX.size)
    is_tokens = op in TOKEN_OPS
    if size != len(payload) or size != seq_len * (1 if is_tokens else hidden_dim) * HIDDEN_WIDTH_BYTES or not size:
        what = "tokens" if is_tokens else f"rows of {hidden_dim} float32"
        raise BadPayload(f"{len(payload)} bytes where {seq_len} {what} were announced")
    tokens: tuple[int, ...] = ()
    if is_tokens:
        tokens, payload = struct.unpack(f"<{seq_len}I", payload), b""
        if op is Op.DECODE_STEP and seq_len != 1:
            raise BadPayload(f"decode_step takes one token, not {seq_len}")
    return Step(
        op, request.hex(), position, seq_len, bool(flags & PREFILL), tokens, payload, sampling,
        bool(flags & LAST_PART),
    )  # fmt: skip


@lru_cache(maxsize=16)  # a run has two at most
def _decode_prefix(prefix: bytes) -> tuple[Op, Sampling]:
    _, _, code, _, _, seed, temperature, top_p = _PREFIX.unpack(prefix)
    op = BINARY_OPS.get(code)
    if op is None:
        raise MalformedRequest(f"a step request of op {code} is not known")
    return op, Sampling(temperature, top_p, seed)


def hidden_reply(size: int, began: float, done: float) -> bytes:
    """The head of a reply of `size` bytes of hidden rows."""
    return REPLY.pack(_MAGIC, _VERSION, HIDDEN, 0, size, began, done)


def token_reply(token: int | None, began: float, done: float) -> tuple[bytes, bytes]:
    """(head, payload) of Last's reply; without a token when more of the prompt follows."""
    payload = b"" if token is None else _TOKEN.pack(token)
    return REPLY.pack(_MAGIC, _VERSION, TOKEN, 0, len(payload), began, done), payload


def error_reply(error: PpError) -> tuple[bytes, bytes]:
    payload = json.dumps(error_fields(error)).encode()
    return REPLY.pack(_MAGIC, _VERSION, ERROR, 0, len(payload), 0.0, 0.0), payload


def decode_reply_head(head: bytes | memoryview) -> tuple[int, int, float, float]:
    """(kind, payload bytes, began, done); raises MalformedRequest."""
    magic, version, kind, _, size, began, done = REPLY.unpack(head)
    if magic != _MAGIC or version != _VERSION:
        raise MalformedRequest(f"not a step reply of this version (magic {magic:#04x}, version {version})")
    return kind, size, began, done


def decode_token(payload: bytes) -> int | None:
    """The token of a TOKEN reply; raises MalformedRequest."""
    if not payload:
        return None
    if len(payload) != _TOKEN.size:
        raise MalformedRequest(f"a token reply of {len(payload)} bytes")
    return int(_TOKEN.unpack(payload)[0])


def decode_error(payload: bytes) -> Mapping[str, Any]:
    """The `{code, message, remedy}` object of an ERROR reply; raises MalformedRequest."""
    try:
        fields = json.loads(payload)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise MalformedRequest("an error reply that is no JSON object")
    return fields
