"""Membership at a node: joins the seed and follows its table."""

from __future__ import annotations

import logging
from typing import Any

from ppsmoke.errors import JoinRefused, PeerLeft, PpError
from ppsmoke.membership import records
from ppsmoke.membership.api import CHANNEL, Member, MemberState, OnChange
from ppsmoke.membership.view import View
from ppsmoke.membership.waiting import MembershipBase
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)


class JoinedMembership(MembershipBase):
    """The mesh must know the seed's address. Every address in the table is taught to the mesh, so that any pair of
    members can link from the table alone. When the link to the seed ends, everything that waits raises that end."""

    def __init__(self, mesh: Mesh, *, seed_id: str, stage_index: int | None, on_change: OnChange | None = None) -> None:
        own = Member(mesh.node_id, "alive", mesh.endpoint.ticket(), stage_index)
        self._view = View(own)
        super().__init__(mesh.node_id, self._view, on_change)
        self._mesh = mesh
        self._seed_id = seed_id
        self._seed_name = mesh.name_of(seed_id)
        self._stage_index = stage_index
        self._rejected: str | None = None
        self._refused_names: dict[str, str] = {}
        mesh.add_listener(self)

    async def join(self, deadline_s: float = 10.0) -> None:
        """Link with the seed and return when its table has us.

        Raises JoinRefused with the seed's reason, PeerLost, DeadlineExceeded; all name the seed.
        """
        self._rejected = None
        join = records.Join(self._mesh.endpoint.ticket(), self._stage_index)
        await self._mesh.send(self._seed_id, CHANNEL, records.encode(join), deadline_s=deadline_s)
        await self._until(
            lambda: self._rejected is not None or self._view.version > 0,
            deadline_s,
            lambda: f"{self._seed_name} did not answer the join within {deadline_s:g} s",
        )
        if self._rejected is not None:
            what = f"{self._seed_name} refused the join: {self._rejected}"
            raise JoinRefused(what, peer=self._seed_name, phase="join")

    async def register(self, name: str, deadline_s: float = 10.0) -> None:
        """Take `name` and return when the seed's table says so.

        Raises JoinRefused with the seed's reason, PeerLost, DeadlineExceeded.
        """
        self._refused_names.pop(name, None)
        await self._mesh.send(self._seed_id, CHANNEL, records.encode(records.Register(name)), deadline_s=deadline_s)
        await self._until(
            lambda: name in self._refused_names or self.resolve(name) == self._own_id,
            deadline_s,
            lambda: f"{self._seed_name} did not confirm the name {name} within {deadline_s:g} s",
        )
        if name in self._refused_names:
            what = f"the name {name} was refused: {self._refused_names[name]}"
            raise JoinRefused(what, peer=self._seed_name, phase="register")

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CHANNEL:
            return
        if node_id != self._seed_id:
            log.warning("dropped membership news from %s: it is not the seed", self._mesh.name_of(node_id))
            return
        try:
            record = records.decode(body)
        except records.RecordMalformed as error:
            log.warning("from %s: %s", self._seed_name, error)
            return
        match record:
            case records.Table():
                self._take(record)
            case records.RegisterRefused(name, reason):
                self._refused_names[name] = reason
                self._wake()
            case records.JoinRejected(reason):
                self._rejected = reason
                self._wake()
            case _:
                log.warning("dropped %s from %s: it is for the seed", type(record).__name__, self._seed_name)

    def link_down(self, node_id: str, reason: PpError) -> None:
        if node_id == self._seed_id:
            self._lost = reason
            state: MemberState = "left" if isinstance(reason, PeerLeft) else "dead"
            self._publish(self._view.gone(node_id, state, reason.what))

    def link_up(self, node_id: str) -> None:
        if node_id == self._seed_id:
            self._lost = None

    def _take(self, table: records.Table) -> None:
        changes = self._view.apply(table)
        for _, member in changes:
            if member.state == "alive" and member.node_id != self._own_id:
                try:
                    self._mesh.learn_address(member.node_id, member.ticket)
                except PpError as error:
                    log.warning("in the membership table: %s", error)
        self._publish(changes)
