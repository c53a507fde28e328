"""A member's copy of the table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ppsmoke.membership.api import Member, MemberState
from ppsmoke.membership.records import Table
from ppsmoke.membership.registry import Change


class View:
    """Applies tables in the order of their versions, whatever order they come in."""

    def __init__(self, own: Member) -> None:
        self._members: dict[str, Member] = {own.node_id: own}
        self._version = 0

    @property
    def members(self) -> Mapping[str, Member]:
        return self._members

    @property
    def version(self) -> int:
        """Of the newest table applied, 0 before the first."""
        return self._version

    def apply(self, table: Table) -> list[Change]:
        """Take over a newer table; one that is not newer changes nothing. A record it no longer has stays as it was."""
        if table.version <= self._version:
            return []
        self._version = table.version
        changes: list[Change] = []
        for new in table.members:
            old = self._members.get(new.node_id)
            if old != new:
                self._members[new.node_id] = new
                changes.append((old, new))
        return changes

    def gone(self, node_id: str, state: MemberState, reason: str) -> list[Change]:
        """What we saw ourselves: our link to the seed ended."""
        old = self._members.get(node_id)
        if old is None or old.state != "alive":
            return []
        new = replace(old, state=state, reason=reason, names=frozenset())
        self._members[node_id] = new
        return [(old, new)]

    def holder(self, name: str) -> Member | None:
        """The alive member that holds `name`."""
        return next((m for m in self._members.values() if m.state == "alive" and name in m.names), None)
