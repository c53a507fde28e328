"""The wire between a node and its worker: pure codec, no IO.

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
import binascii
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from ppsmoke.errors import BadPayload, MalformedRequest, PpError, RequestRejected
from ppsmoke.roles import Role

HIDDEN_WIDTH_BYTES = 4
BASE_LINE_BYTES = 64 * 1024
_MAX_U32 = 2**32 - 1
_MAX_SEED = 2**63 - 1
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


class MessageDecoder:
    """Bytes in, messages out; a malformed one comes out as the error to answer with, and decoding goes on after it.

    `line_limit` and `payload_limit` (bytes) bound what is kept in memory; what exceeds them is skipped, not stored.
    """

    def __init__(self, line_limit: int = BASE_LINE_BYTES, payload_limit: int = _MAX_U32) -> None:
        self.line_limit = line_limit
        self.payload_limit = payload_limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skip_bytes = 0
        self._skip_line = False
        self._header: dict[str, Any] | None = None
        self._wanted = 0

    def feed(self, data: bytes) -> list[Message | RequestRejected]:
        self._buffer += data
        out: list[Message | RequestRejected] = []
        while (message := self._next(out)) is not None:
            out.append(message)
        return out

    def _next(self, out: list[Message | RequestRejected]) -> Message | RequestRejected | None:
        while True:
            if self._skip_bytes:
                dropped = min(self._skip_bytes, len(self._buffer))
                del self._buffer[:dropped]
                self._skip_bytes -= dropped
                if self._skip_bytes:
                    return None
            if self._header is not None:
                return self._take_raw(self._header)
            if not self._buffer:
                return None
            if self._buffer[0] == FRAME_MAGIC and not self._skip_line:
                return self._take_frame()
            line = self._take_line(out)
            if line is None:
                return None
            if not line.strip():
                continue
            message = self._parse_line(line)
            if message is not None:
                return message

    def _take_line(self, out: list[Message | RequestRejected]) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if self._skip_line:
                self._clear()
            elif self._scanned > self.line_limit:
                self._clear()
                self._skip_line = True
                out.append(MalformedRequest(f"a line is longer than {self.line_limit} bytes"))
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        if self._skip_line:
            self._skip_line = False
            return b""
        if len(line) > self.line_limit:
            out.append(MalformedRequest(f"a line is longer than {self.line_limit} bytes"))
            return b""
        return line

    def _clear(self) -> None:
        self._buffer.clear()
        self._scanned = 0

    def _parse_line(self, line: bytes) -> Message | RequestRejected | None:
        try:
            fields = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            return MalformedRequest(f"a line is not JSON: {error}")
        if not isinstance(fields, dict):
            return MalformedRequest("a line is not a JSON object")
        if "hidden_bytes" not in fields:
            return _with_b64(fields)
        size = fields["hidden_bytes"]
        if not _is_int(size) or size < 0:
            return MalformedRequest("hidden_bytes is not a byte count")
        if "hidden_b64" in fields:
            self._skip_bytes = size
            return MalformedRequest("hidden_b64 and hidden_bytes exclude each other")
        if size > self.payload_limit:
            self._skip_bytes = size
            return BadPayload(f"a payload of {size} bytes is over the limit of {self.payload_limit}")
        del fields["hidden_bytes"]
        self._header, self._wanted = fields, size
        return self._take_raw(fields)

    def _take_raw(self, fields: dict[str, Any]) -> Message | None:
        if len(self._buffer) < self._wanted:
            return None
        hidden = bytes(self._buffer[: self._wanted])
        del self._buffer[: self._wanted]
        self._header = None
        return Message(fields, hidden, Form.RAW)

    def _take_frame(self) -> Message | RequestRejected | None:
        if len(self._buffer) < FRAME_HEADER.size:
            return None
        header = FRAME_HEADER.unpack_from(self._buffer)
        _, version, code, flags, id_size, _, position, seq_len, size, seed, temperature, top_p = header
        known = version == FRAME_VERSION and (code in BINARY_OPS or code in (REPLY_HIDDEN, REPLY_TOKEN))
        if not known or size > self.payload_limit or id_size > MAX_REQUEST_ID_BYTES:
            del self._buffer[: FRAME_HEADER.size]
            self._skip_bytes = id_size + size
            if not known:
                return MalformedRequest(f"a binary frame of version {version} and op {code} is not known")
            return BadPayload(f"a binary frame with {id_size} + {size} bytes is over the limit")
        end = FRAME_HEADER.size + id_size + size
        if len(self._buffer) < end:
            return None
        raw_id = bytes(self._buffer[FRAME_HEADER.size : FRAME_HEADER.size + id_size])
        payload = bytes(self._buffer[FRAME_HEADER.size + id_size : end])
        del self._buffer[:end]
        try:
            request_id = raw_id.decode()
        except UnicodeDecodeError:
            return MalformedRequest("a binary frame's request id is not UTF-8")
        fields: dict[str, Any] = {"request_id": request_id, "seq_len": seq_len}
        if code == REPLY_HIDDEN:
            return Message(fields, payload, Form.BINARY)
        tokens: list[int] = []
        if code == REPLY_TOKEN or BINARY_OPS[code] in TOKEN_OPS:
            if len(payload) % 4:
                return BadPayload("a binary frame's tokens are not whole 32-bit numbers")
            tokens = list(struct.unpack(f"<{len(payload) // 4}I", payload))
        if code == REPLY_TOKEN:
            fields["token_id"] = tokens[0] if tokens else None
            return Message(fields, None, Form.BINARY)
        op = BINARY_OPS[code]
        fields.update(op=op.value, position=position, is_prefill=bool(flags & FLAG_PREFILL))
        fields.update(last=bool(flags & FLAG_LAST))
        fields["sampling"] = {"temperature": temperature, "top_p": top_p, "seed": seed}
        if op is Op.EMBED_AND_FORWARD:
            return Message({**fields, "tokens": tokens}, None, Form.BINARY)
        if op is Op.DECODE_STEP:
            if len(tokens) != 1:
                return BadPayload(f"decode_step takes one token, not {len(tokens)}")
            return Message({**fields, "token": tokens[0]}, None, Form.BINARY)
        return Message(fields, payload, Form.BINARY)


def line_limit_for(context: int, hidden_dim: int) -> int:
    """The longest line worth keeping: a whole context as base64 rows or as token ids, plus room for the fields."""
    return BASE_LINE_BYTES + context * (16 + hidden_dim * HIDDEN_WIDTH_BYTES * 4 // 3)


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
    position = int_field(fields, "position", 0, _MAX_U32)
    if op in TOKEN_OPS:
        if message.hidden:
            raise BadPayload(f"{op} takes tokens, not hidden rows")
        tokens = _tokens_of(op, fields)
        return Step(op, request_id, position, len(tokens), op is Op.EMBED_AND_FORWARD, tokens)
    seq_len = int_field(fields, "seq_len", 1, _MAX_U32)
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
    if not _is_int(seed) or not 0 <= seed <= _MAX_SEED:
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
    if not isinstance(value, list) or not all(_is_int(token) and 0 <= token <= _MAX_U32 for token in value):
        raise MalformedRequest(f"{name} must be a list of token ids")
    return tuple(value)


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


def _tokens_of(op: Op, fields: Mapping[str, Any]) -> tuple[int, ...]:
    if op is Op.DECODE_STEP:
        return (int_field(fields, "token", 0, _MAX_U32),)
    tokens = token_list_field(fields, "tokens")
    if not tokens:
        raise MalformedRequest("tokens is empty")
    return tokens


def _with_b64(fields: dict[str, Any]) -> Message | RequestRejected:
    if "hidden_b64" not in fields:
        return Message(fields, None, Form.JSON)
    text = fields.pop("hidden_b64")
    if not isinstance(text, str):
        return MalformedRequest("hidden_b64 is not a text")
    try:
        return Message(fields, base64.b64decode(text, validate=True), Form.JSON)
    except (binascii.Error, ValueError):
        return BadPayload("hidden_b64 is not base64")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
