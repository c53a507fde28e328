"""Whom a stage's node knows: the orchestrator, the peers it was told of, and those that its membership has met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ppsmoke.errors import BadNodeEnvironment, DeadlineExceeded, JoinRefused, OrchestratorLost, PeerLost
from ppsmoke.membership import SwimMembership
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.transport import Mesh, TicketInvalid, parse_ticket

_HEARD_S = 120.0


class Peers:
    """`orchestrator` is its node id. Raises BadNodeEnvironment for a ticket that is none."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self.orchestrator = _node_of("SEED_ADDR", settings.seed_addr)
        self._names: dict[str, str] = {self.orchestrator: "orchestrator"}
        self._tickets = _tickets_by_node(settings.peer_direct)
        self._reachable = False
        # Set by `enter`.
        self._mesh: Mesh
        self._membership: SwimMembership

    def enter(self, mesh: Mesh, membership: SwimMembership) -> None:
        """From now on these lead to the peers. Before `join`."""
        self._mesh = mesh
        self._membership = membership
        self._reachable = True

    def learn(self, tickets: Sequence[str]) -> None:
        """Addresses of peers that were not known when this node began. Raises BadNodeEnvironment for what is none."""
        known = _tickets_by_node(tickets)
        self._tickets |= known
        if self._reachable:
            self._learn(known)

    async def join(self) -> None:
        """Become a member. Raises JoinRefused, OrchestratorLost."""
        settings = self._settings
        self._mesh.learn_address(self.orchestrator, settings.seed_addr)
        self._learn(self._tickets)
        try:
            await self._membership.join(deadline_s=settings.join_timeout)
            await self._membership.wait_alive(1, deadline_s=settings.join_timeout)
        except JoinRefused:
            raise
        except (PeerLost, DeadlineExceeded) as error:
            raise OrchestratorLost(
                f"stage {settings.stage} could not join the orchestrator: {error}", stage=settings.stage, phase="join"
            ) from error

    def hears_orchestrator(self) -> bool:
        """That it counts as alive is not enough: nothing may depend on a membership that still works."""
        member = self._membership.members().get(self.orchestrator)
        alive = member is not None and member.state == "alive"
        return alive and self._membership.heard_within(self.orchestrator, _HEARD_S)

    def name_of(self, node_id: str) -> str:
        """'stage 1', 'orchestrator', or 'node 0123abcd' for one that is neither yet."""
        if node_id not in self._names and self._reachable:
            member = self._membership.members().get(node_id)
            if member is not None and member.stage_index is not None:
                self._names[node_id] = f"stage {member.stage_index}"
        return self._names.get(node_id, f"node {node_id[:8]}")

    def _learn(self, tickets: Mapping[str, str]) -> None:
        for node_id, ticket in tickets.items():
            self._mesh.learn_address(node_id, ticket)


def _tickets_by_node(tickets: Sequence[str]) -> dict[str, str]:
    return {_node_of("PEER_DIRECT", ticket): ticket for ticket in tickets}


def _node_of(variable: str, ticket: str) -> str:
    try:
        return parse_ticket(ticket)[0]
    except TicketInvalid as error:
        raise BadNodeEnvironment(f"{variable}: {error}", remedy="Give the ticket that the peer printed.") from None
