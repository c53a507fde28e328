"""What a stage says to the orchestrator."""

from __future__ import annotations

import time
from collections.abc import Callable

from ppsmoke.errors import OrchestratorLost, PpError
from ppsmoke.messages import (
    CONTROL_CHANNEL,
    CodeFetched,
    EdgeResumed,
    FetchCode,
    OutboundEdgeProvision,
    StageFault,
    StageMessage,
    StagePaused,
    StageProgress,
    StageReady,
    StageStopped,
    encode_message,
)
from ppsmoke.stage import machine
from ppsmoke.stage.progress import Progress
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.transport import Mesh
from ppsmoke.transport.link import Outage
from ppsmoke.worker_client import WorkerReady

_SEND_S = 5.0
_FAR_SEND_S = 15.0  # a dial over a relay may take ten of them
_LONGEST_REFUSAL = 1000


class Sending:
    """Of one stage, to the node `orchestrator`. `lost` gets the error when a message could not be delivered: without
    its orchestrator a stage has nobody to report to. Only `deliver` raises.

    `mesh` is set by whoever made it, before anything is sent.
    """

    def __init__(self, settings: NodeSettings, orchestrator: str, lost: Callable[[OrchestratorLost], None]) -> None:
        self._settings = settings
        self._orchestrator = orchestrator
        self._lost = lost
        self.mesh: Mesh

    async def deliver(self, message: StageMessage) -> None:
        """Raises as Mesh.send does."""
        send_s = max(_FAR_SEND_S if self._settings.far else _SEND_S, self._settings.silence_limit)
        await self.mesh.send(self._orchestrator, CONTROL_CHANNEL, encode_message(message), deadline_s=send_s)

    async def send(self, message: StageMessage) -> None:
        """See the class."""
        try:
            await self.deliver(message)
        except PpError as error:
            what = f"{message.type} could not be delivered: {error}"
            self._lost(OrchestratorLost(what, stage=self._settings.stage))

    async def progress(self, text: str, progress: Progress | None = None) -> None:
        """What the stage does, in words, and in numbers where there are any."""
        message = StageProgress(
            run_id=self._settings.run_id,
            stage_index=self._settings.stage,
            node_id=self.mesh.node_id,
            phase=text,
        )
        if progress is not None:
            message = message.replace(
                state=progress.state, done=progress.done, total=progress.total, unit=progress.unit
            )
        await self.send(message)

    async def ready(self, run_id: str, worker: WorkerReady, provisioned_at: float) -> None:
        """`provisioned_at` is a reading of the monotonic clock."""
        await self.send(
            StageReady(
                run_id=run_id,
                stage_index=self._settings.stage,
                node_id=self.mesh.node_id,
                device=worker.device or "",
                timings={
                    "load": worker.load_s,
                    "compile": worker.compile_s,
                    "ready": time.monotonic() - provisioned_at,
                },
            )
        )

    async def edge_resumed(self, edge: OutboundEdgeProvision, outage: Outage) -> None:
        await self.send(
            EdgeResumed(
                run_id=self._settings.run_id,
                stage_index=self._settings.stage,
                node_id=self.mesh.node_id,
                edge_id=edge.edge_id,
                stall_s=outage.stall_s,
                before=outage.before,
                after=outage.after,
            )
        )

    async def code_fetched(self, request: FetchCode, refusal: str) -> None:
        """`refusal`: why it was not; empty when it was."""
        await self.send(
            CodeFetched(
                run_id=request.run_id,
                stage_index=self._settings.stage,
                node_id=self.mesh.node_id,
                sha256=request.sha256,
                refusal=refusal[:_LONGEST_REFUSAL],
            )
        )

    async def paused(self) -> None:
        """That we have heard that the orchestrator pauses."""
        run_id, stage = self._settings.run_id, self._settings.stage
        await self.send(StagePaused(run_id=run_id, stage_index=stage, node_id=self.mesh.node_id))

    async def fault(self, fault: machine.EmitFault) -> None:
        """That the stage has failed."""
        await self.send(
            StageFault(
                run_id=fault.run_id,
                stage_index=self._settings.stage,
                node_id=self.mesh.node_id,
                reason=fault.reason,
                code=fault.code,
                log_tail=fault.log_tail,
                remedy=fault.remedy or "",
                phase=fault.phase or "",
            )
        )

    async def stopped(self, run_id: str, timings: dict[str, float]) -> None:
        """`timings` as StageStopped has them."""
        await self.send(
            StageStopped(
                run_id=run_id,
                stage_index=self._settings.stage,
                node_id=self.mesh.node_id,
                timings=timings,
            )
        )
