"""The seed's book of members and names. Pure.

Every method returns the changes it made as (record before, record after); each change gives the table a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ppsmoke.membership.api import (
    ENTRY_NAME,
    EXIT_NAME,
    ORCHESTRATOR_NAME,
    Member,
    MemberState,
    stage_name,
)
from ppsmoke.membership.records import MAX_MEMBERS, Table

Change = tuple[Member | None, Member]


class RegistryRefusal(Exception):
    """What was asked for is not given; the message is a clause that completes "... refused: "."""


class Registry:
    """`own`: the seed's record. `planned`: the stage index of each node id of the plan; None trusts what nodes say."""

    def __init__(self, own: Member, planned: Mapping[str, int] | None = None) -> None:
        self._own_id = own.node_id
        self._planned = planned
        self._members: dict[str, Member] = {own.node_id: own}
        self._version = 1

    @property
    def members(self) -> Mapping[str, Member]:
        return self._members

    def table(self) -> Table:
        return Table(self._version, tuple(self._members.values()))

    def join(self, node_id: str, ticket: str, stage_index: int | None) -> list[Change]:
        """A node says that it is here; again with a new address, or back from the dead, is fine."""
        if node_id == self._own_id:
            raise RegistryRefusal("that is the seed's own id")
        if self._planned is not None and self._planned.get(node_id, stage_index) != stage_index:
            raise RegistryRefusal(f"the plan has this node as stage {self._planned[node_id]}, not {stage_index}")
        old = self._members.get(node_id)
        if old is None and len(self._members) >= MAX_MEMBERS:
            raise RegistryRefusal(f"there are {MAX_MEMBERS} members already")
        alive = old is not None and old.state == "alive"
        names = old.names if old is not None and alive else frozenset()
        return self._put(Member(node_id, "alive", ticket, stage_index, names))

    def register(self, node_id: str, name: str) -> list[Change]:
        """A member takes a name; one it has already is no change."""
        member = self._members.get(node_id)
        if member is None or member.state != "alive":
            raise RegistryRefusal("only a member can hold a name; join first")
        holder = self.holder(name)
        if holder is not None and holder.node_id != node_id:
            who = "the orchestrator" if holder.stage_index is None else f"stage {holder.stage_index}"
            raise RegistryRefusal(f"{name} is held by {who}")
        self._check_entitled(member, name)
        return self._put(replace(member, names=member.names | {name}))

    def leave(self, node_id: str, reason: str) -> list[Change]:
        """A member said goodbye."""
        return self._gone(node_id, "left", reason)

    def dead(self, node_id: str, reason: str) -> list[Change]:
        """A member was lost."""
        return self._gone(node_id, "dead", reason)

    def holder(self, name: str) -> Member | None:
        """The alive member that holds `name`."""
        return next((m for m in self._members.values() if m.state == "alive" and name in m.names), None)

    def _gone(self, node_id: str, state: MemberState, reason: str) -> list[Change]:
        member = self._members.get(node_id)
        if member is None or member.state != "alive" or node_id == self._own_id:
            return []
        return self._put(replace(member, state=state, reason=reason, names=frozenset()))

    def _check_entitled(self, member: Member, name: str) -> None:
        """Stage names belong to their stage, entry and exit to a stage, the orchestrator's to the seed."""
        if member.node_id == self._own_id:
            return
        if name == ORCHESTRATOR_NAME:
            raise RegistryRefusal(f"{name} is the orchestrator's")
        if member.stage_index is None:
            raise RegistryRefusal(f"{name} is for stages")
        if name == ENTRY_NAME and member.stage_index != 0:
            raise RegistryRefusal(f"{name} is for stage 0, not stage {member.stage_index}")
        if name.startswith("pp-stage-") and name != stage_name(member.stage_index):
            raise RegistryRefusal(f"{name} is not for stage {member.stage_index}")
        if not name.startswith("pp-stage-") and name not in (ENTRY_NAME, EXIT_NAME):
            raise RegistryRefusal(f"{name} is no name of this run")

    def _put(self, new: Member) -> list[Change]:
        old = self._members.get(new.node_id)
        if old == new:
            return []
        self._members[new.node_id] = new
        self._version += 1
        return [(old, new)]
