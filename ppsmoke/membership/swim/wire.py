"""Messages as bytes. Pure; the decoder takes anything and raises only `WireError`.

    message = "SW" version:1 cluster:8 kind:1 incarnation:8 life:8  body  claim*
    claim   = flags:1 node_id:32 incarnation:8 life:8 stage:2  [length:2 address]  [accuser:32]
    name    = length:1 name owner:32 life:8 incarnation:8 version:8 held:1

Integers are big-endian, a stage of -1 is none. `incarnation` and `life` of a message are its sender's; who sent it, the
transport knows. A claim's flags: state in bits 0 and 1, bit 2 an address follows, bit 3 an accuser follows. The fields
up to `kind`, and the kinds REFUSE and JOIN, are the same in every version, so that versions can refuse each other.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ppsmoke.membership.swim.api import MemberState
from ppsmoke.membership.swim.config import MAX_ADDRESS_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES

STATES: tuple[MemberState, ...] = ("alive", "suspect", "dead", "left")
_MAGIC = b"SW"
_HEAD = struct.Struct(">2sB8sBQQ")
_PING = struct.Struct(">IB")
_PING_REQ = struct.Struct(">I32sH")
_SEQ = struct.Struct(">I")
_CLAIM = struct.Struct(">B32sQQh")
_LENGTH = struct.Struct(">H")
_NAME_REST = struct.Struct(">32sQQQB")
_COMPARE = struct.Struct(">32s32s")
_STATE_BITS, _ADDRESS_BIT, _ACCUSER_BIT = 0b11, 0b100, 0b1000
_ANSWER = 1
_NAME = re.compile(rb"[a-z0-9-]{1,%d}" % MAX_NAME_BYTES)
_NODE_ID = re.compile(r"[0-9a-f]{64}")
_MAX_REASON_BYTES = 200
MAX_COUNT = 2**63 - 1
"""The highest incarnation and version that is taken from others, so that one more can always be written."""

HEAD_BYTES = _HEAD.size
COMPARE_BYTES = _COMPARE.size
ROOM = MAX_MESSAGE_BYTES - HEAD_BYTES
"""Bytes for body and claims."""


class WireError(Exception):
    """Bytes that are no message for us. `reason` is a Note's; `kind` is known when all but the version is in order."""

    def __init__(self, reason: str, text: str, kind: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.kind = kind


class Kind(IntEnum):
    REFUSE = 0
    """body: the reason, UTF-8. Answer to JOIN."""
    JOIN = 1
    """The sender's record is the one claim. Answered by REFUSE or WELCOMEs."""
    WELCOME = 2
    """No body: the claims are a part of all that the sender knows."""
    PING = 3
    """seq:4 attempt:1. Answered by ACK with both."""
    ACK = 4
    PING_REQ = 5
    """seq:4 target:32 budget_ms:2. Answered by ACK with RELAYED as its attempt, or NACK."""
    NACK = 6
    """seq:4: the target of that PING_REQ has not answered (yet)."""
    NEWS = 7
    """No body, only claims."""
    ASK = 8
    """node_id:32 each: please send what you know of these, address included. Answered by NEWS."""
    COMPARE = 9
    """first:32 last:32: the claims, without addresses, are all that the sender knows between these ids, both included.
    Answered by NEWS with what the receiver knows better, and an ASK for what it lacks."""
    NAMES_DIGEST = 10
    """digest:8 of all held names. Answered by NAMES when the receiver's differs."""
    NAMES = 11
    """flags:1 first last (each length:1 name), then names, and no claims. With flag 1, they are all that the sender has
    from `first` to `last`, and what the receiver has newer is asked back. An empty `last` is the end."""


DIRECT, REPEATED, RELAYED = 0, 1, 2
"""What an ACK answers: the first PING, its repetition on the reliable stream, a PING_REQ."""


class Claim(NamedTuple):
    """What somebody says of a member. `address` None: not said; `accuser` None: whoever sent it."""

    node_id: str
    state: MemberState
    incarnation: int
    life: int
    stage_index: int | None
    address: bytes | None = None
    accuser: str | None = None


class NameRecord(NamedTuple):
    """`owner` has written at (incarnation, version) that it holds `name`, or (held False) that it no longer does."""

    name: str
    owner: str
    life: int
    incarnation: int
    version: int
    held: bool

    @property
    def stamp(self) -> tuple[int, int]:
        return self.incarnation, self.version


class Ping(NamedTuple):
    seq: int
    attempt: int


class PingReq(NamedTuple):
    seq: int
    target: str
    budget_ms: int


class Ask(NamedTuple):
    node_ids: tuple[str, ...]


class Compare(NamedTuple):
    first: str
    last: str


class Names(NamedTuple):
    answer: bool
    first: str
    last: str
    records: tuple[NameRecord, ...]


Body = str | Ping | PingReq | int | Ask | Compare | Names | bytes | None
"""By kind: REFUSE str; PING and ACK Ping; PING_REQ PingReq; NACK int; ASK Ask; COMPARE Compare;
NAMES_DIGEST bytes; NAMES Names; others None."""


class Message(NamedTuple):
    kind: Kind
    incarnation: int
    life: int
    body: Body
    claims: tuple[Claim, ...]


def is_node_id(text: str) -> bool:
    """Whether `text` can be the node id of a member."""
    return _NODE_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether `text` can be a name."""
    return text.isascii() and _NAME.fullmatch(text.encode()) is not None


# ---- encoding


def encode_head(version: int, cluster: bytes, kind: Kind, incarnation: int, life: int) -> bytes:
    return _HEAD.pack(_MAGIC, version, cluster, kind, incarnation, life)


def encode_claim(claim: Claim) -> bytes:
    flags = STATES.index(claim.state)
    rest = b""
    if claim.address is not None:
        flags |= _ADDRESS_BIT
        rest = _LENGTH.pack(len(claim.address)) + claim.address
    if claim.accuser is not None:
        flags |= _ACCUSER_BIT
        rest += bytes.fromhex(claim.accuser)
    stage = -1 if claim.stage_index is None else claim.stage_index
    return _CLAIM.pack(flags, bytes.fromhex(claim.node_id), claim.incarnation, claim.life, stage) + rest


def claim_bytes(claim: Claim) -> int:
    """How long `claim` gets."""
    address = 0 if claim.address is None else _LENGTH.size + len(claim.address)
    return _CLAIM.size + address + (0 if claim.accuser is None else 32)


def encode_ping(seq: int, attempt: int) -> bytes:
    return _PING.pack(seq, attempt)


def encode_ping_req(seq: int, target: str, budget_ms: int) -> bytes:
    return _PING_REQ.pack(seq, bytes.fromhex(target), budget_ms)


def encode_nack(seq: int) -> bytes:
    return _SEQ.pack(seq)


def encode_ask(node_ids: Sequence[str]) -> bytes:
    """No more than fit: the rest is asked for another time."""
    return b"".join(map(bytes.fromhex, node_ids[: ROOM // 32]))


def encode_compare(first: str, last: str) -> bytes:
    return _COMPARE.pack(bytes.fromhex(first), bytes.fromhex(last))


def encode_refusal(reason: str) -> bytes:
    return reason.encode(errors="replace")[:_MAX_REASON_BYTES]


def encode_name(record: NameRecord) -> bytes:
    return _text(record.name) + _NAME_REST.pack(
        bytes.fromhex(record.owner), record.life, record.incarnation, record.version, record.held
    )


def encode_names(answer: bool, first: str, last: str, records: Iterable[bytes]) -> bytes:
    """`records`: encoded names."""
    return bytes((_ANSWER if answer else 0,)) + _text(first) + _text(last) + b"".join(records)


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


# ---- decoding


def decode(data: bytes, version: int, cluster: bytes) -> Message:
    """Raises WireError when `data` is no message of this version and cluster."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError("oversized", f"a message of {len(data)} bytes, the most is {MAX_MESSAGE_BYTES}")
    if len(data) < HEAD_BYTES:
        raise WireError("malformed", f"a message of only {len(data)} bytes")
    magic, its_version, its_cluster, kind, incarnation, life = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise WireError("malformed", "not a membership message")
    if its_cluster != cluster and kind != Kind.REFUSE:
        raise WireError("cluster", "a message of another cluster", kind)
    if its_version != version and kind != Kind.REFUSE:
        raise WireError("version", f"protocol version {its_version}, ours is {version}", kind)
    reader = _Reader(data, HEAD_BYTES)
    try:
        body = _decode_body(kind, reader)
        claims = reader.claims()
    except (struct.error, IndexError, UnicodeDecodeError):
        raise WireError("malformed", f"a message of kind {kind} that ends too early") from None
    return Message(Kind(kind), incarnation, life, body, claims)


def _decode_body(kind: int, reader: _Reader) -> Body:
    match kind:
        case Kind.PING | Kind.ACK:
            return Ping(*reader.unpack(_PING))
        case Kind.JOIN | Kind.WELCOME | Kind.NEWS:
            return None
        case Kind.COMPARE:
            first, last = reader.unpack(_COMPARE)
            return Compare(first.hex(), last.hex())
        case Kind.NAMES_DIGEST:
            return reader.take(8)
        case Kind.NAMES:
            return reader.names()
        case Kind.PING_REQ:
            seq, target, budget_ms = reader.unpack(_PING_REQ)
            return PingReq(seq, target.hex(), budget_ms)
        case Kind.NACK:
            return int(reader.unpack(_SEQ)[0])
        case Kind.ASK:
            return Ask(reader.node_ids())
        case Kind.REFUSE:
            return _printable(reader.rest()[:_MAX_REASON_BYTES].decode(errors="replace"))
    raise WireError("malformed", f"a message of unknown kind {kind}")


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


class _Reader:
    """Walks through a message; what is not there raises struct.error or IndexError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) < count:
            raise IndexError
        self._at += count
        return piece

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def node_ids(self) -> tuple[str, ...]:
        found = []
        while self._at < len(self._data):
            found.append(self.take(32).hex())
        return tuple(found)

    def claims(self) -> tuple[Claim, ...]:
        found = []
        while self._at < len(self._data):
            found.append(self._claim())
        return tuple(found)

    def names(self) -> Names:
        (flags,) = self.take(1)
        first, last = self._name(), self._name()
        found = []
        while self._at < len(self._data):
            name = self._name()
            if not name:
                raise WireError("malformed", "a name of no characters")
            owner, life, incarnation, version, held = self.unpack(_NAME_REST)
            if max(incarnation, version) > MAX_COUNT:
                raise WireError("malformed", "a name with an impossible version")
            found.append(NameRecord(name, owner.hex(), life, incarnation, version, bool(held)))
        return Names(bool(flags & _ANSWER), first, last, tuple(found))

    def _claim(self) -> Claim:
        flags, node_id, incarnation, life, stage = self.unpack(_CLAIM)
        if flags & ~(_STATE_BITS | _ADDRESS_BIT | _ACCUSER_BIT) or stage < -1 or incarnation > MAX_COUNT:
            raise WireError("malformed", "a claim with unknown flags, stage or incarnation")
        address = accuser = None
        if flags & _ADDRESS_BIT:
            (length,) = self.unpack(_LENGTH)
            if length > MAX_ADDRESS_BYTES:
                raise WireError("malformed", f"an address of {length} bytes, the most is {MAX_ADDRESS_BYTES}")
            address = self.take(length)
        if flags & _ACCUSER_BIT:
            accuser = self.take(32).hex()
        return Claim(
            node_id.hex(),
            STATES[flags & _STATE_BITS],
            incarnation,
            life,
            None if stage == -1 else stage,
            address,
            accuser,
        )

    def _name(self) -> str:
        (length,) = self.take(1)
        name = self.take(length)
        if length and not _NAME.fullmatch(name):
            raise WireError("malformed", "a name with characters that no name has")
        return name.decode()
