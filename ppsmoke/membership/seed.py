"""Membership at the orchestrator: keeps the registry and tells every member of every change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ppsmoke.errors import JoinRefused, PeerLeft, PpError
from ppsmoke.membership import records
from ppsmoke.membership.api import CHANNEL, Member, OnChange
from ppsmoke.membership.registry import Change, Registry, RegistryRefusal
from ppsmoke.membership.waiting import MembershipBase
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

_SEND_S = 10.0


class SeedMembership(MembershipBase):
    """`names`: the seed's own names. `planned`: the stage index of each planned node id; None trusts the nodes."""

    def __init__(
        self,
        mesh: Mesh,
        *,
        names: frozenset[str],
        on_change: OnChange | None = None,
        planned: Mapping[str, int] | None = None,
    ) -> None:
        own = Member(mesh.node_id, "alive", mesh.endpoint.ticket(), None, names)
        self._registry = Registry(own, planned)
        super().__init__(mesh.node_id, self._registry, on_change)
        self._mesh = mesh
        mesh.add_listener(self)

    async def register(self, name: str, deadline_s: float = 10.0) -> None:
        """Take a name for the seed itself. Raises JoinRefused when another member holds it."""
        try:
            self._changed(self._registry.register(self._own_id, name))
        except RegistryRefusal as error:
            raise JoinRefused(f"the name {name} was refused: {error}", phase="register") from None

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CHANNEL:
            return
        name = self._mesh.name_of(node_id)
        try:
            match records.decode(body):
                case records.Join(ticket, stage_index):
                    self._join(node_id, ticket, stage_index)
                case records.Register(wanted):
                    self._register(node_id, wanted)
                case other:
                    log.warning("dropped %s from %s: it is for members", type(other).__name__, name)
        except records.RecordMalformed as error:
            log.warning("from %s: %s", name, error)

    def link_down(self, node_id: str, reason: PpError) -> None:
        lost = self._registry.leave if isinstance(reason, PeerLeft) else self._registry.dead
        self._changed(lost(node_id, reason.what))

    def _join(self, node_id: str, ticket: str, stage_index: int | None) -> None:
        try:
            self._mesh.learn_address(node_id, ticket)
            changes = self._registry.join(node_id, ticket, stage_index)
        except (RegistryRefusal, PpError) as error:
            log.warning("%s may not join: %s", self._mesh.name_of(node_id), error)
            self._send(node_id, records.JoinRejected(str(error)))
            return
        self._changed(changes)
        if not changes:
            self._send(node_id, self._registry.table())

    def _register(self, node_id: str, name: str) -> None:
        try:
            changes = self._registry.register(node_id, name)
        except RegistryRefusal as error:
            log.warning("%s may not have the name %s: %s", self._mesh.name_of(node_id), name, error)
            self._send(node_id, records.RegisterRefused(name, str(error)))
            return
        self._changed(changes)
        if not changes:
            self._send(node_id, self._registry.table())

    def _changed(self, changes: list[Change]) -> None:
        if not changes:
            return
        table = self._registry.table()
        for member in table.members:
            if member.state == "alive" and self._mesh.is_linked(member.node_id):
                self._send(member.node_id, table)
        self._publish(changes)

    def _send(self, node_id: str, record: records.Record) -> None:
        async def send() -> None:
            try:
                await self._mesh.send(node_id, CHANNEL, records.encode(record), deadline_s=_SEND_S)
            except PpError as error:
                log.debug("membership news did not reach %s: %s", self._mesh.name_of(node_id), error)

        self._mesh.spawn(send(), f"tell {self._mesh.name_of(node_id)}")
