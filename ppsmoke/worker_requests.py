"""What a request to a worker asks for, with every field checked: pure. See worker_protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsmoke.errors import BadPayload, MalformedRequest
from ppsmoke.worker_protocol import (
    GREEDY,
    HIDDEN_WIDTH_BYTES,
    MAX_REQUEST_ID_BYTES,
    MAX_U32,
    TOKEN_OPS,
    Message,
    Op,
    Sampling,
    Step,
)

_MAX_SEED = 2**63 - 1


def op_of(message: Message) -> Op:
    """The op of a request; raises MalformedRequest."""
    name = message.fields.get("op")
    if not isinstance(name, str):
        raise MalformedRequest("a request has no op")
    try:
        return Op(name)
    except ValueError:
        known = ", ".join(Op)
        raise MalformedRequest(f"there is no op {name[:80]!r}; there are {known}") from None


def parse_step(message: Message, hidden_dim: int) -> Step:
    """A step op with every field checked; raises MalformedRequest or BadPayload."""
    op = op_of(message)
    fields = message.fields
    request_id = text_field(fields, "request_id")
    if not 0 < len(request_id.encode(errors="replace")) <= MAX_REQUEST_ID_BYTES or _has_surrogates(request_id):
        raise MalformedRequest(f"request_id must be 1 to {MAX_REQUEST_ID_BYTES} bytes of UTF-8")
    position = int_field(fields, "position", 0, MAX_U32)
    if op in TOKEN_OPS:
        if message.hidden:
            raise BadPayload(f"{op} takes tokens, not hidden rows")
        tokens = _tokens_of(op, fields)
        return Step(op, request_id, position, len(tokens), op is Op.EMBED_AND_FORWARD, tokens)
    seq_len = int_field(fields, "seq_len", 1, MAX_U32)
    if message.hidden is None:
        raise MalformedRequest(f"{op} needs hidden_b64 or hidden_bytes")
    expected = seq_len * hidden_dim * HIDDEN_WIDTH_BYTES
    if len(message.hidden) != expected:
        raise BadPayload(
            f"{len(message.hidden)} bytes of hidden rows where {seq_len} x {hidden_dim} float32 need {expected}"
        )
    # A prompt of one token is a prefill too; only the sender knows, so position 0 is the best guess without the flag.
    is_prefill = bool_field(fields, "is_prefill", seq_len > 1 or position == 0)
    sampling, last = GREEDY, True
    if op is Op.FORWARD_AND_SAMPLE:
        sampling, last = parse_sampling(fields.get("sampling")), bool_field(fields, "last", True)
    return Step(op, request_id, position, seq_len, is_prefill, (), message.hidden, sampling, last)


def parse_sampling(value: object) -> Sampling:
    """`{"temperature", "top_p", "seed"}`, each optional; None is greedy; raises MalformedRequest."""
    if value is None:
        return GREEDY
    if not isinstance(value, dict):
        raise MalformedRequest("sampling is not an object")
    if unknown := set(value) - {"temperature", "top_p", "seed"}:
        raise MalformedRequest(f"sampling has no {', '.join(sorted(map(str, unknown)))}")
    temperature, top_p = value.get("temperature", 0.0), value.get("top_p", 1.0)
    if not _is_number(temperature) or not 0 <= temperature <= 1e6:
        raise MalformedRequest("sampling.temperature must be a number from 0 up")
    if not _is_number(top_p) or not 0 < top_p <= 1:
        raise MalformedRequest("sampling.top_p must lie in (0, 1]")
    seed = value.get("seed", 0)
    if not is_int(seed) or not 0 <= seed <= _MAX_SEED:
        raise MalformedRequest("sampling.seed must be a whole number in [0, 2**63)")
    return Sampling(float(temperature), float(top_p), seed)


def int_field(fields: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise MalformedRequest(f"{name} must be a whole number from {low} to {high}")
    return value


def text_field(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedRequest(f"{name} must be a text")
    return value


def bool_field(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise MalformedRequest(f"{name} must be true or false")
    return value


def token_list_field(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(is_int(token) and 0 <= token <= MAX_U32 for token in value):
        raise MalformedRequest(f"{name} must be a list of token ids")
    return tuple(value)


def is_int(value: object) -> bool:
    """A whole number of JSON, where true is 1 to Python and none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def _tokens_of(op: Op, fields: Mapping[str, Any]) -> tuple[int, ...]:
    if op is Op.DECODE_STEP:
        return (int_field(fields, "token", 0, MAX_U32),)
    tokens = token_list_field(fields, "tokens")
    if not tokens:
        raise MalformedRequest("tokens is empty")
    return tokens


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
