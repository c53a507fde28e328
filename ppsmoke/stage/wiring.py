"""The edges of one stage: the inbound ones it accepts, the outbound ones it opens, as one provision says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.errors import EdgeFaulted, StageFaulted
from ppsmoke.membership import ORCHESTRATOR_NAME, Membership, stage_name
from ppsmoke.messages import EdgeKind, OutboundEdgeProvision, ProvisionStage
from ppsmoke.objects import StreamObject
from ppsmoke.roles import Role, role_of
from ppsmoke.stage.actor import Activation, Inference, Message, NextToken, SetNeighbors
from ppsmoke.stage.machine import Handle
from ppsmoke.transport import Mesh


@dataclass(frozen=True, slots=True)
class WiringDeadlines:
    """Seconds. `name_s`: for a neighbour's name to be known; `open_s`: for an edge to be accepted or opened."""

    name_s: float
    open_s: float


class Wiring:
    """Make it inside the event loop and `open` it once; `close` at any time.

    `ready(edge_id)` and `faulted(error)` are called in the event loop. `load(handle)` gets each inbound object in its
    turn: the next one of an edge is taken off its ring when `release(handle)` was called for the one before.
    """

    def __init__(
        self,
        mesh: Mesh,
        membership: Membership,
        acceptor: EdgeAcceptor,
        provision: ProvisionStage,
        deadlines: WiringDeadlines,
        *,
        ready: Callable[[int], None],
        faulted: Callable[[EdgeFaulted], None],
        load: Callable[[Handle], None],
    ) -> None:
        self._mesh = mesh
        self._membership = membership
        self._provision = provision
        self._deadlines = deadlines
        self._ready = ready
        self._faulted = faulted
        self._load = load
        self._kinds = {edge.edge_id: edge.kind for edge in provision.inbound}
        self._loaded: dict[Handle, tuple[StreamObject, asyncio.Event]] = {}
        self._inbound = {edge.edge_id: InboundEdge(provision.run_id, edge) for edge in provision.inbound}
        self._outbound = {edge.edge_id: OutboundEdge(mesh, provision.run_id, edge) for edge in provision.outbound}
        for edge in self._inbound.values():
            edge.name_producer(mesh.name_of(edge.provision.producer_node_id))
            acceptor.expect(edge)

    async def serve_inbound(self, edge_id: int) -> None:
        """Wait for the producer's stream, then load its objects until it ends. Raises as InboundEdge does."""
        edge = self._inbound[edge_id]
        await edge.wait_ready(self._deadlines.open_s)
        self._ready(edge_id)
        while (obj := await edge.next()) is not None:
            # Token s on the feedback edge starts step s + 1.
            sequence = obj.sequence + (1 if self._kinds[edge_id] is EdgeKind.FEEDBACK else 0)
            handle = Handle(edge_id, obj.request_id, sequence, obj.part, obj.last_part, done=obj.done)
            released = asyncio.Event()
            self._loaded[handle] = (replace(obj, sequence=sequence), released)
            self._load(handle)
            await released.wait()

    async def open_outbound(self) -> None:
        """Resolve the consumers and open an edge to each. Raises StageFaulted where a name is another node's."""
        for edge in self._provision.outbound:
            await self._resolve(edge)
        await asyncio.gather(*(self._open(edge_id, edge) for edge_id, edge in self._outbound.items()))

    def take(self, handle: Handle) -> Message:
        """The actor's message for a loaded object."""
        obj, _ = self._loaded[handle]
        if self._kinds[handle.edge_id] is EdgeKind.ACTIVATION:
            return Activation(obj)
        return Inference(obj) if handle.sequence == 0 else NextToken(obj)

    def release(self, handle: Handle) -> None:
        """The object is done with; the edge's next one may be loaded."""
        _, released = self._loaded.pop(handle)
        released.set()

    def neighbors(self) -> SetNeighbors:
        """Where the actor's outputs go."""
        senders = {edge.kind: self._sender(edge.edge_id) for edge in self._provision.outbound}
        if role_of(self._provision.stage_index, self._provision.stage_count) is Role.LAST:
            return SetNeighbors(next=senders.get(EdgeKind.FEEDBACK), reply_to=senders[EdgeKind.TOKEN_OUT])
        return SetNeighbors(next=senders[EdgeKind.ACTIVATION])

    async def close(self, reason: str) -> None:
        """Stop every edge. Never raises."""
        closing = [edge.close(reason) for edge in self._inbound.values()]
        closing += [edge.close(reason) for edge in self._outbound.values()]
        await asyncio.gather(*closing)

    async def _open(self, edge_id: int, edge: OutboundEdge) -> None:
        # The consumer accepts when it was provisioned itself, which may be a moment after us.
        await edge.open(self._deadlines.open_s)
        edge.faulted.add_done_callback(self._edge_faulted)
        self._ready(edge_id)

    def _edge_faulted(self, faulted: asyncio.Future[EdgeFaulted]) -> None:
        if not faulted.cancelled():
            self._faulted(faulted.result())

    async def _resolve(self, edge: OutboundEdgeProvision) -> None:
        """The name must lead to the node of the plan: identity comes from the plan, addresses from names."""
        stage = self._provision.stage_index
        names = {
            EdgeKind.ACTIVATION: stage_name(stage + 1),
            EdgeKind.FEEDBACK: stage_name(0),
            EdgeKind.TOKEN_OUT: ORCHESTRATOR_NAME,
        }
        name = names[edge.kind]
        found = await self._membership.wait_name(name, deadline_s=self._deadlines.name_s)
        if found != edge.consumer_node_id:
            planned = self._mesh.name_of(edge.consumer_node_id)
            raise StageFaulted(
                f"{name} is {self._mesh.name_of(found)}, the plan says {planned}", stage=stage, phase=f"resolve {name}"
            )

    def _sender(self, edge_id: int) -> Callable[[StreamObject], Awaitable[None]]:
        async def send(obj: StreamObject) -> None:
            await self._outbound[edge_id].write(replace(obj, edge_id=edge_id))

        return send
