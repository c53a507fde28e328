"""The membership channel's messages. Pure: JSON objects in and out, checked on arrival.

Member to seed: `Join`, `Register`. Seed to member: `Table` after every change, `RegisterRefused`, `JoinRejected`.
Goodbyes and deaths need no message: the link tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from ppsmoke.membership.api import Member, MemberState

_NODE_ID = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9-]{1,64}")
MAX_MEMBERS = 1024


class RecordMalformed(Exception):
    """A membership message that is none; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Join:
    ticket: str
    stage_index: int | None


@dataclass(frozen=True, slots=True)
class Register:
    name: str


@dataclass(frozen=True, slots=True)
class Table:
    """All members. `version` grows with every change."""

    version: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class RegisterRefused:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class JoinRejected:
    reason: str


Record = Join | Register | Table | RegisterRefused | JoinRejected


def encode(record: Record) -> dict[str, Any]:
    match record:
        case Join(ticket, stage_index):
            return {"op": "join", "ticket": ticket, "stage_index": stage_index}
        case Register(name):
            return {"op": "register", "name": name}
        case Table(version, members):
            return {"op": "table", "version": version, "members": [_member_out(member) for member in members]}
        case RegisterRefused(name, reason):
            return {"op": "register_refused", "name": name, "reason": reason}
        case JoinRejected(reason):
            return {"op": "join_rejected", "reason": reason}


def decode(body: dict[str, Any]) -> Record:
    """Raises RecordMalformed."""
    match body:
        case {"op": "join", "ticket": str(ticket), "stage_index": None | int() as stage_index}:
            return Join(ticket, stage_index)
        case {"op": "register", "name": str(name)} if _NAME.fullmatch(name):
            return Register(name)
        case {"op": "table", "version": int(version), "members": list(members)} if len(members) <= MAX_MEMBERS:
            return Table(version, tuple(_member_in(member) for member in members))
        case {"op": "register_refused", "name": str(name), "reason": str(reason)}:
            return RegisterRefused(name, reason)
        case {"op": "join_rejected", "reason": str(reason)}:
            return JoinRejected(reason)
    raise RecordMalformed(f"no membership message: {str(body.get('op'))[:40]!r}")


def _member_out(member: Member) -> dict[str, Any]:
    return {
        "node_id": member.node_id,
        "state": member.state,
        "ticket": member.ticket,
        "stage_index": member.stage_index,
        "names": sorted(member.names),
        "reason": member.reason,
    }


def _member_in(body: Any) -> Member:
    match body:
        case {
            "node_id": str(node_id),
            "state": "alive" | "left" | "dead" as state,
            "ticket": str(ticket),
            "stage_index": None | int() as stage_index,
            "names": list(names),
            "reason": str(reason),
        } if _NODE_ID.fullmatch(node_id) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            return Member(node_id, cast(MemberState, state), ticket, stage_index, frozenset(names), reason)
    raise RecordMalformed("a member record is malformed")
