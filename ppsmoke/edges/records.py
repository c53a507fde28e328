"""What travels on an edge's stream beside objects. Pure.

Producer to consumer: `Open` first, then object records, `Finish` last. Consumer to producer: `Accept` or `Refuse`,
now and then `Ack`, and later one of `Ended` (everything up to the finish has arrived), `Closed` (it wants no more; no
fault) or `Fault`. These records are JSON and begin with "{"; an object record begins with its magic.

When the connection is lost the producer opens another stream over another one, with `Resume` in the place of `Open`;
the consumer answers `Resumed` (or `Refuse`) and the objects follow from there. Objects are counted from 0 over the
edge's whole life. An edge may have several lanes: the first is that stream, each further one begins with `Lane`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

MAX_RECORD_BYTES = 4096
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Open:
    run_id: str
    edge_id: int
    kind: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """`attempt`: 1 for the first one of an edge. The producer still has the objects from `first` on; the next one that
    it has never sent is number `next`."""

    run_id: str
    edge_id: int
    kind: str
    attempt: int
    first: int
    next: int
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Resumed:
    """`next`: the number of the object that is due."""

    next: int


@dataclass(frozen=True, slots=True)
class Lane:
    """Lane `number` (from 1) of the stream that came with `attempt` (0: with `Open`)."""

    run_id: str
    edge_id: int
    attempt: int
    number: int


@dataclass(frozen=True, slots=True)
class Ack:
    """All objects before number `next` have been taken."""

    next: int


@dataclass(frozen=True, slots=True)
class Accept:
    pass


@dataclass(frozen=True, slots=True)
class Refuse:
    """`reason` is a clause that completes "... refused the edge: "."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    pass


@dataclass(frozen=True, slots=True)
class Ended:
    pass


@dataclass(frozen=True, slots=True)
class Fault:
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    reason: str


Record = Open | Resume | Lane | Accept | Resumed | Refuse | Ack | Finish | Ended | Fault | Closed
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Open, Resume, Lane, Accept, Resumed, Refuse, Ack, Finish, Ended, Fault, Closed)
}
_NUMBERS = frozenset({"edge_id", "lanes", "attempt", "first", "next", "number"})


class RecordMalformed(Exception):
    """The bytes are not a record of an edge's stream."""


def is_record(frame: bytes) -> bool:
    """Whether a frame is one of these records, not an object."""
    return frame[:1] == b"{"


def encode(record: Record) -> bytes:
    fields = {name: value[:_LONGEST_REASON] if name == "reason" else value for name, value in asdict(record).items()}
    return json.dumps({"edge": type(record).__name__, **fields}).encode()


def decode(frame: bytes) -> Record:
    """Raises RecordMalformed."""
    try:
        body: Any = json.loads(frame)
    except (ValueError, RecursionError):
        raise RecordMalformed("not an edge record") from None
    kind = _KINDS.get(str(body.get("edge"))) if isinstance(body, dict) else None
    if kind is None:
        raise RecordMalformed("not an edge record")
    for field in fields(kind):
        if type(body.get(field.name)) is not (int if field.name in _NUMBERS else str):
            raise RecordMalformed(f"{kind.__name__} without a proper `{field.name}`")
    values = {field.name: body[field.name] for field in fields(kind)}
    if "reason" in values:
        values["reason"] = values["reason"][:_LONGEST_REASON]
    record: Record = kind(**values)
    return record
