"""What travels on an edge's stream beside objects. Pure.

Producer to consumer: `Open` first, then object records, `Finish` last. Consumer to producer: `Accept` or `Refuse`, and
later one of `Ended` (everything up to the finish has arrived), `Closed` (it wants no more; no fault) or `Fault`. These
records are JSON and begin with "{"; an object record begins with its magic.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MAX_RECORD_BYTES = 4096
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Open:
    run_id: str
    edge_id: int
    kind: str


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


Record = Open | Accept | Refuse | Finish | Ended | Fault | Closed


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
    match body:
        case {"edge": "Open", "run_id": str(run_id), "edge_id": int(edge_id), "kind": str(kind)}:
            return Open(run_id, edge_id, kind)
        case {"edge": "Accept"}:
            return Accept()
        case {"edge": "Refuse", "reason": str(reason)}:
            return Refuse(reason[:_LONGEST_REASON])
        case {"edge": "Finish"}:
            return Finish()
        case {"edge": "Ended"}:
            return Ended()
        case {"edge": "Fault", "reason": str(reason)}:
            return Fault(reason[:_LONGEST_REASON])
        case {"edge": "Closed", "reason": str(reason)}:
            return Closed(reason[:_LONGEST_REASON])
    raise RecordMalformed("not an edge record")
