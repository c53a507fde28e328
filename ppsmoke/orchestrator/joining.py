"""The wait for the stages' nodes to join; those that cannot serve get others in their place, where there are any."""

from __future__ import annotations

import asyncio

from ppsmoke.errors import (
    DeviceUnavailable,
    HostFailed,
    ModelFetchFailed,
    NotEnoughDisk,
    NotEnoughMemory,
    PeerLost,
    PpError,
    WorkerDied,
)
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.node_source import NodeSource
from ppsmoke.orchestrator.options import View

_OF_THE_MACHINE = (
    DeviceUnavailable,
    HostFailed,
    ModelFetchFailed,
    NotEnoughDisk,
    NotEnoughMemory,
    PeerLost,
    WorkerDied,
)
"""What another machine may do better."""


class Joining:
    """Until the plan is provisioned its nodes may change; afterwards whatever befalls one is a fault of the run."""

    def __init__(self, cluster: Cluster, nodes: NodeSource, view: View, join_s: float) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._view = view
        self._join_s = join_s
        self._troubled: dict[str, str] = {}  # node ids that cannot serve, with the reason
        self._trouble_came = asyncio.Event()
        self._over = False

    def takes(self, stage: int, error: PpError) -> bool:
        """Whether this is answered by another node in the place of the stage's, and so no fault of the run."""
        if self._over or not self._nodes.network.remote or not isinstance(error, _OF_THE_MACHINE):
            return False
        self._view.detail(str(error))
        self._troubled[self._cluster.plan.stages[stage].node_id] = error.what
        self._trouble_came.set()
        return True

    async def complete(self) -> bool:
        """Return when all stages have joined; False when some have not in time and there are no others for them.

        Raises what the source raises.
        """
        self._view.waiting("waiting for the stages to join")
        while failed := await self._failed():
            if not await self._nodes.replace(failed):
                return False
        self._over = True
        return True

    async def _failed(self) -> dict[int, str]:
        """The stages that will not join, with the reasons; none once all have."""
        self._trouble_came.clear()
        joined = asyncio.create_task(self._cluster.wait_joined())
        trouble = asyncio.create_task(self._trouble_came.wait())
        try:
            if not self._trouble():
                await asyncio.wait((joined, trouble), timeout=self._join_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (joined, trouble):
                task.cancel()
        late = dict.fromkeys(self._cluster.not_joined(), f"it did not join within {self._join_s:g} s")
        return self._trouble() or late

    def _trouble(self) -> dict[int, str]:
        """Of the nodes that the plan has now."""
        stages = self._cluster.plan.stages
        return {s.stage_index: self._troubled[s.node_id] for s in stages if s.node_id in self._troubled}
