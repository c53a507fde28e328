"""What the measured ways of a chain are worth: the rules for a warning, the table, the JSON. Pure.

A token passes every edge once, and pays half a round trip at each. A prompt passes in parts, and a stage has nothing to
do while its part is under way. So an edge is a bad one

* when it goes over a relay although another edge between two stages is direct,
* when its round trip is over SLOW_ROUND_TRIP_S,
* when one part of a prompt takes longer than SLOW_PART_S on it, where the edge carries such parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ppsmoke.figures import elapsed, in_milliseconds, rate
from ppsmoke.run_events import EdgeMeasured
from ppsmoke.wording import columns, member_name

SLOW_ROUND_TRIP_S = 0.25
SLOW_PART_S = 1.0

_HEAD = ("way", "path", "round trip", "carries")


def judged(edges: Iterable[EdgeMeasured]) -> list[EdgeMeasured]:
    """The same in order, each with its warning or none."""
    ordered = sorted(edges, key=lambda edge: (_place(edge.source), _place(edge.target)))
    some_direct = any(edge.path == "direct" for edge in ordered if _between_stages(edge))
    return [replace(edge, warning=_warning(edge, some_direct)) for edge in ordered]


def _warning(edge: EdgeMeasured, some_direct: bool) -> str:
    """A clause behind the edge's name: a relay's detour, which explains the rest, or all that is slow."""
    if edge.path == "relay" and some_direct and _between_stages(edge):
        return "goes over a relay although others are direct"
    slow: list[str] = []
    if edge.round_trip_s is not None and edge.round_trip_s > SLOW_ROUND_TRIP_S:
        took, limit = in_milliseconds(edge.round_trip_s), in_milliseconds(SLOW_ROUND_TRIP_S)
        slow.append(f"has a round trip of {took}, more than {limit}")
    if _between_stages(edge) and edge.bytes_per_s and edge.probe_bytes / edge.bytes_per_s > SLOW_PART_S:
        took = elapsed(edge.probe_bytes / edge.bytes_per_s)
        slow.append(f"takes {took} for one part of a prompt, more than {SLOW_PART_S:g} s")
    return ", and ".join(slow)


def edge_name(source: int | None, target: int | None) -> str:
    """'stage 1 -> stage 2', 'orchestrator -> stage 0'"""
    return f"{member_name(source)} -> {member_name(target)}"


def warning_line(edge: EdgeMeasured) -> str:
    return f"warning: {edge_name(edge.source, edge.target)} {edge.warning}"


def edge_lines(edges: Sequence[EdgeMeasured]) -> list[str]:
    """A head and a line an edge; fits 80 columns."""
    cells = [
        (
            edge_name(edge.source, edge.target),
            edge.path,
            in_milliseconds(edge.round_trip_s),
            rate(edge.bytes_per_s),
        )
        for edge in edges
    ]
    return columns([_HEAD, *cells], lambda column: column >= 2)


def edges_json(edges: Iterable[EdgeMeasured]) -> list[dict[str, Any]]:
    """The `edges` of the run's JSON; documented in docs/json.md."""
    return [
        {
            "source": edge.source,
            "target": edge.target,
            "path": edge.path,
            "round_trip_s": None if edge.round_trip_s is None else round(edge.round_trip_s, 6),
            "bytes_per_s": None if edge.bytes_per_s is None else round(edge.bytes_per_s),
            "probe_bytes": edge.probe_bytes,
            "warning": edge.warning or None,
        }
        for edge in edges
    ]


def _between_stages(edge: EdgeMeasured) -> bool:
    return edge.source is not None and edge.target is not None


def _place(stage: int | None) -> int:
    return -1 if stage is None else stage
