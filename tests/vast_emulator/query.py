"""The filters of searches and listings: `{"column": {"op": value}}`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_BESIDE = frozenset({"type", "order", "limit", "allocated_storage"})
_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda have, want: have == want,
    "neq": lambda have, want: have != want,
    "gt": lambda have, want: have is not None and have > want,
    "gte": lambda have, want: have is not None and have >= want,
    "lt": lambda have, want: have is not None and have < want,
    "lte": lambda have, want: have is not None and have <= want,
    "in": lambda have, want: have in want,
    "notin": lambda have, want: have not in want,
}


class BadQuery(ValueError):
    """In the service's words."""


def search(offers: Iterable[Mapping[str, Any]], query: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a search answers: filtered, ordered, at most 64 rows. Raises BadQuery."""
    wants = {name: want for name, want in query.items() if name not in _BESIDE}
    found = [offer for offer in offers if _fits(_searchable(offer), wants)]
    for column, direction in reversed(query.get("order") or [["score", "desc"]]):
        found.sort(key=lambda offer: offer.get(column) or 0, reverse=direction == "desc")
    return found[: min(64, int(query.get("limit") or 64))]


def select(rows: Iterable[Mapping[str, Any]], filters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What `select_filters` leaves of a listing; only columns that the contract stores. Raises BadQuery."""
    for column in filters:
        if column not in ("id", "label", "actual_status", "gpu_name", "verification", "machine_id"):
            raise BadQuery(f"Error in query parameters: {column} is not a valid search key")
    return [row for row in rows if _fits(row, filters)]


def _searchable(offer: Mapping[str, Any]) -> Mapping[str, Any]:
    location = str(offer.get("geolocation") or "").rpartition(",")[2].strip()
    return {
        **offer,
        "geolocation": location,
        "verified": offer.get("verification") == "verified",
        "external": bool(offer.get("external")),
        "datacenter": offer.get("hosting_type") == 1,
    }


def _fits(row: Mapping[str, Any], wants: Mapping[str, Any]) -> bool:
    for column, want in wants.items():
        if column not in row:
            raise BadQuery(f"Error in query parameters: {column} is not a valid search key")
        for op, value in want.items():
            if op not in _OPS:
                raise BadQuery(f"Error in query parameters: {op} is not an operator")
            if not _OPS[op](row[column], value):
                return False
    return True
