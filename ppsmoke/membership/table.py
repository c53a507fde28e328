"""The membership table as an operator reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ppsmoke.figures import in_milliseconds
from ppsmoke.membership.api import MemberState
from ppsmoke.roles import role_of
from ppsmoke.wording import columns

PathKind = Literal["self", "direct", "relay"]

_HEAD = ("stage", "role", "state", "inc", "round trip", "path", "names")
_NUMBERS = frozenset({0, 3, 4})


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member as this process sees it. `rtt_s`: round trip of its probes in seconds, None before the first;
    `path`: how our link reaches it, None without a link."""

    node_id: str
    stage_index: int | None
    state: MemberState
    incarnation: int
    rtt_s: float | None = None
    path: PathKind | None = None
    names: frozenset[str] = frozenset()


def table_lines(rows: Iterable[MemberRow], stage_count: int) -> list[str]:
    """A head and one line a member, the orchestrator first, then the stages in order; fits 80 columns."""
    cells = [
        (
            "-" if row.stage_index is None else str(row.stage_index),
            _role(row, stage_count),
            row.state,
            str(row.incarnation),
            in_milliseconds(row.rtt_s),
            row.path or "-",
            " ".join(sorted(row.names, key=lambda name: (not name.startswith("pp-stage"), name))) or "-",
        )
        for row in in_order(rows)
    ]
    return columns([_HEAD, *cells], lambda column: column in _NUMBERS)


def table_json(rows: Iterable[MemberRow], stage_count: int) -> list[dict[str, Any]]:
    """The `members` of the run's JSON; documented in docs/json.md."""
    return [
        {
            "node_id": row.node_id,
            "stage": row.stage_index,
            "role": _role(row, stage_count),
            "state": row.state,
            "incarnation": row.incarnation,
            "rtt_s": None if row.rtt_s is None else round(row.rtt_s, 6),
            "path": row.path,
            "names": sorted(row.names),
        }
        for row in in_order(rows)
    ]


def in_order(rows: Iterable[MemberRow]) -> list[MemberRow]:
    return sorted(rows, key=lambda row: (-1 if row.stage_index is None else row.stage_index, row.node_id))


def _role(row: MemberRow, stage_count: int) -> str:
    if row.stage_index is None:
        return "orchestrator"
    return role_of(row.stage_index, stage_count).value if row.stage_index < stage_count else "?"
