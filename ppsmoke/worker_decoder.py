"""Takes the messages of the worker's wire off it, whatever their form: pure, no IO. See worker_protocol."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any

from ppsmoke.errors import BadPayload, MalformedRequest, RequestRejected
from ppsmoke.worker_protocol import (
    BASE_LINE_BYTES,
    BINARY_OPS,
    FLAG_LAST,
    FLAG_PREFILL,
    FRAME_HEADER,
    FRAME_MAGIC,
    FRAME_VERSION,
    MAX_REQUEST_ID_BYTES,
    MAX_U32,
    REPLY_HIDDEN,
    REPLY_TOKEN,
    TOKEN_OPS,
    Form,
    Message,
    Op,
)
from ppsmoke.worker_requests import is_int


class MessageDecoder:
    """Bytes in, messages out; a malformed one comes out as the error to answer with, and decoding goes on after it.

    `line_limit` and `payload_limit` (bytes) bound what is kept in memory; what exceeds them is skipped, not stored.
    """

    def __init__(self, line_limit: int = BASE_LINE_BYTES, payload_limit: int = MAX_U32) -> None:
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
        if not is_int(size) or size < 0:
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
