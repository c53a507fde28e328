"""One record on an edge: a fixed header and its payload.

Layout (little-endian, 48 bytes): magic u16, version u8, flags u8, edge_id u32, request_id 16 bytes, sequence u32,
part u32, position u32, seq_len u32, payload_len u64. Sequence 0 is prefill, 1.. are decode steps.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import Generation, ObjectSpec

HEADER = struct.Struct("<HBBI16sIIIIQ")
_MAGIC = 0x5050
_MAGIC_BYTES = b"PP"
_VERSION = 1
FLAGS_AT = 3
_SEQUENCE = slice(24, 28)
_PLACE = slice(24, 32)  # sequence and part
_LENGTH = slice(40, 48)

FinishReason = Literal["eos", "max_tokens"]


# Plain numbers: arithmetic with enum.IntFlag takes longer than all the rest of a header.
LAST_PART: Final = 1
PREFILL: Final = 2
_DONE: Final = 4
_EOS: Final = 8
_KNOWN_FLAGS: Final = 15


@dataclass(frozen=True, slots=True)
class StreamObject:
    """Token ids (int32) or an activation ([seq_len, hidden_dim] float32), little-endian, in `payload`.

    `last_part`: no further part of this sequence follows. `finish_reason` is set on the object that ends a request
    (the `done` of the protocol). `request_id` is 32 hex digits.
    """

    edge_id: int
    request_id: str
    sequence: int
    position: int
    seq_len: int
    payload: bytes
    part: int = 0
    last_part: bool = True
    is_prefill: bool = False
    finish_reason: FinishReason | None = None

    @property
    def done(self) -> bool:
        return self.finish_reason is not None

    @property
    def tokens(self) -> list[int]:
        """The payload as token ids."""
        return list(memoryview(self.payload).cast("i"))

    def describe(self) -> str:
        part = f" part {self.part}" if self.part or not self.last_part else ""
        return f"sequence {self.sequence}{part} of request {self.request_id[:8]}"


def token_payload(tokens: Sequence[int]) -> bytes:
    """Token ids as an object's payload."""
    return array("i", tokens).tobytes()


def encode_header(obj: StreamObject) -> bytes:
    """The 48 header bytes; the payload follows them on the wire."""
    flags = 0
    if obj.last_part:
        flags |= LAST_PART
    if obj.is_prefill:
        flags |= PREFILL
    if obj.finish_reason is not None:
        flags |= _DONE
    if obj.finish_reason == "eos":
        flags |= _EOS
    return HEADER.pack(
        _MAGIC, _VERSION, flags, obj.edge_id, bytes.fromhex(obj.request_id), obj.sequence, obj.part, obj.position,
        obj.seq_len, len(obj.payload),
    )  # fmt: skip


def is_whole_object(frame: bytes) -> bool:
    """Whether a frame looks like one object record: its magic, and as many bytes as its header says. Cheap; what else
    may be wrong with it, `decode_object` finds."""
    return (
        len(frame) >= HEADER.size
        and frame[:2] == _MAGIC_BYTES
        and HEADER.size + int.from_bytes(frame[_LENGTH], "little") == len(frame)
    )


def is_object_head(frame: bytes) -> bool:
    """Whether a frame begins as an object record does."""
    return len(frame) >= HEADER.size and frame[:2] == _MAGIC_BYTES


def object_bytes(head: bytes) -> int:
    """Bytes of the whole object record whose header this is, the header included."""
    return HEADER.size + int.from_bytes(head[_LENGTH], "little")


def is_prompt_record(record: bytes) -> bool:
    """Whether a whole object belongs to sequence 0."""
    return record[_SEQUENCE] == b"\0\0\0\0"


def begins_request(record: bytes) -> bool:
    """Whether a whole object is the first of its request."""
    return record[_PLACE] == b"\0\0\0\0\0\0\0\0"


def is_done_record(record: bytes) -> bool:
    """Whether a whole object ends its request."""
    return bool(record[FLAGS_AT] & _DONE)


def describe_step(record: bytes) -> str:
    """The phase of computing a whole object: "prefill at position 0"."""
    position = HEADER.unpack_from(record)[7]
    return f"{'prefill' if record[FLAGS_AT] & PREFILL else 'decode'} at position {position}"


def decode_object(record: bytes, spec: ObjectSpec) -> StreamObject:
    """The object in one whole record (header + payload).

    Raises EdgeFaulted when the record is not one, or its sizes disagree with each other or with the edge's spec.
    """
    if len(record) < HEADER.size:
        raise EdgeFaulted(f"object record of {len(record)} bytes is shorter than its {HEADER.size}-byte header")
    magic, version, flags, edge_id, request, sequence, part, position, seq_len, size = HEADER.unpack_from(record)
    if magic != _MAGIC or version != _VERSION:
        raise EdgeFaulted(f"not an object record of this version (magic {magic:#06x}, version {version})")
    if flags & ~_KNOWN_FLAGS:
        raise EdgeFaulted(f"object record has unknown flags {flags:#04x}")
    if size != len(record) - HEADER.size:
        raise EdgeFaulted(f"object says {size} payload bytes and carries {len(record) - HEADER.size}")
    if size > spec.max_extent:
        raise EdgeFaulted(f"object of {size} bytes is over the edge's limit of {spec.max_extent}")
    if seq_len < 1 or size != spec.payload_bytes(seq_len):
        raise EdgeFaulted(f"object of {seq_len} positions should carry {spec.payload_bytes(seq_len)} bytes, not {size}")
    if flags & _EOS and not flags & _DONE:
        raise EdgeFaulted("object record says why its request ended and not that it did")
    reason: FinishReason | None = None
    if flags & _DONE:
        reason = "eos" if flags & _EOS else "max_tokens"
    return StreamObject(
        edge_id=edge_id,
        request_id=request.hex(),
        sequence=sequence,
        position=position,
        seq_len=seq_len,
        payload=record[HEADER.size :],
        part=part,
        last_part=bool(flags & LAST_PART),
        is_prefill=bool(flags & PREFILL),
        finish_reason=reason,
    )


def finish_reason(
    token: int, tokens_so_far: int, generation: Generation, *, most: int | None = None
) -> FinishReason | None:
    """Why the request ends with this token, or None; an end token wins over the limit.

    `most`: this request's limit where it is not the run's: less may fit behind its prompt.
    """
    if token in generation.eos_token_ids:
        return "eos"
    return "max_tokens" if tokens_so_far >= (generation.max_tokens if most is None else most) else None
