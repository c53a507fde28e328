"""What a stage tells of the ways to the consumers of its edges: each measured before it is ready, and every change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ppsmoke.errors import PpError
from ppsmoke.messages import ORCHESTRATOR_TARGET, EdgeKind, EdgeReport, PathReport, ProvisionStage
from ppsmoke.paths.probe import MEASURE_S, measure
from ppsmoke.paths.warm_up import warm_up
from ppsmoke.paths.watch import PathKind
from ppsmoke.transport import Mesh


class NeighbourPaths:
    """`send` delivers to the orchestrator and raises nothing."""

    def __init__(
        self, mesh: Mesh, provision: ProvisionStage, send: Callable[[EdgeReport | PathReport], Awaitable[None]]
    ) -> None:
        self._mesh = mesh
        self._provision = provision
        self._send = send
        self._activations = {e.consumer_node_id for e in provision.outbound if e.kind is EdgeKind.ACTIVATION}
        self._targets = {edge.consumer_node_id: self._target(edge.kind) for edge in provision.outbound}

    async def measure(self) -> None:
        """All at one time, within a bounded one; then the orchestrator has been told, and long ways are warm."""
        await asyncio.gather(*(self._measure(node, target) for node, target in self._targets.items()))

    async def changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        """A link goes another way now. The orchestrator sees that of its own links by itself."""
        target = self._targets.get(node_id, ORCHESTRATOR_TARGET)
        if target != ORCHESTRATOR_TARGET:
            own = self._provision
            await self._send(
                PathReport(
                    run_id=own.run_id,
                    stage_index=own.stage_index,
                    node_id=self._mesh.node_id,
                    target=target,
                    before=before,
                    after=after,
                )
            )

    async def _measure(self, node: str, target: int) -> None:
        own = self._provision
        report = EdgeReport(
            run_id=own.run_id, stage_index=own.stage_index, node_id=self._mesh.node_id, target=target, trouble="unknown"
        )
        try:
            way = await measure(self._mesh, node, own.probe_bytes, MEASURE_S)
        except PpError as error:
            await self._send(report.replace(trouble=str(error)))
            return
        await self._send(
            report.replace(
                path=way.path,
                round_trip_s=way.round_trip_s,
                bytes_per_s=way.bytes_per_s or 0.0,
                probe_bytes=way.probe_bytes,
                trouble="",
            )
        )
        if node in self._activations:
            await warm_up(self._mesh, node, way.round_trip_s, own.warm_up_bytes, way.probe_bytes)

    def _target(self, kind: EdgeKind) -> int:
        if kind is EdgeKind.TOKEN_OUT:
            return ORCHESTRATOR_TARGET
        return 0 if kind is EdgeKind.FEEDBACK else self._provision.stage_index + 1
