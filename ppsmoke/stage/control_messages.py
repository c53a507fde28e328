"""What a stage is told by its orchestrator, taken to the part of the node that it concerns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ppsmoke.errors import MalformedRequest, PpError
from ppsmoke.guarded_tasks import GuardedTasks
from ppsmoke.membership import SwimMembership
from ppsmoke.messages import (
    ClockProbe,
    FetchCode,
    PauseRun,
    ProvisionStage,
    RestartNode,
    ResumeRun,
    StopRun,
    decode_message,
)
from ppsmoke.stage import machine
from ppsmoke.stage.new_code import NewCode, Successor
from ppsmoke.stage.peers import Peers
from ppsmoke.stage.reporting import Reporting
from ppsmoke.stage.sending import Sending
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.transport import Mesh

log = logging.getLogger(__name__)


class ControlMessages:
    """Of one stage. `active_run` gives the id of its run, `dispatch` steps its machine; `successor` is set where the
    orchestrator wants other code in this node's place."""

    def __init__(
        self,
        settings: NodeSettings,
        peers: Peers,
        mesh: Mesh,
        membership: SwimMembership,
        sending: Sending,
        reporting: Reporting,
        new_code: NewCode,
        tasks: GuardedTasks,
        *,
        active_run: Callable[[], str],
        dispatch: Callable[[machine.Event], None],
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._orchestrator = peers.orchestrator
        self._mesh = mesh
        self._membership = membership
        self._sending = sending
        self._reporting = reporting
        self._new_code = new_code
        self._tasks = tasks
        self._active_run = active_run
        self._dispatch = dispatch
        self.successor: Successor | None = None

    def take(self, node_id: str, body: Mapping[str, Any]) -> None:
        """One message, from whomever. What is none, or not for a stage, is dropped; the machine refuses more."""
        try:
            decoded = decode_message(body)
        except MalformedRequest as error:
            log.warning("from %s: %s", self._peers.name_of(node_id), error)
            return
        match decoded:
            case ProvisionStage():
                self._dispatch(machine.ProvisionReceived(node_id, decoded))
            case PauseRun() | ResumeRun():
                self._orchestrator_pauses(node_id, decoded)
            case StopRun(run_id=run_id, reason=reason):
                self._dispatch(machine.StopReceived(node_id, run_id, reason))
            case ClockProbe() if node_id == self._orchestrator:
                self._tasks.spawn(self._reporting.answer(decoded, self._mesh.node_id))
            case FetchCode() | RestartNode() if node_id != self._orchestrator or decoded.run_id != self._active_run():
                log.warning("refused %s from %s", decoded.type, self._peers.name_of(node_id))
            case FetchCode():
                self._tasks.spawn(self._fetch_code(decoded))
            case RestartNode():
                self._restart(node_id, decoded)
            case _:
                log.warning("dropped %s from %s: it is not for a stage", decoded.type, self._peers.name_of(node_id))

    def orchestrator_goes_on(self) -> None:
        """It is known to be back, if it was away."""
        if self._membership.is_held:
            log.info("the orchestrator goes on")
            self._membership.go_on()
            self._mesh.stopped.discard(self._orchestrator)

    def _orchestrator_pauses(self, sender: str, message: PauseRun | ResumeRun) -> None:
        """Its process stops or goes on: its silence in between is no death."""
        if sender != self._orchestrator or message.run_id != self._settings.run_id:
            log.warning(
                "dropped %s from %s: it is not this run's orchestrator", message.type, self._peers.name_of(sender)
            )
            return
        if isinstance(message, ResumeRun):
            self.orchestrator_goes_on()
            return
        log.info("the orchestrator's process is stopped")
        self._membership.hold()
        self._mesh.stopped.add(sender)
        self._tasks.spawn(self._sending.paused())

    async def _fetch_code(self, message: FetchCode) -> None:
        refusal = ""
        try:
            await self._new_code.fetch(message, self._settings.ready_timeout)
        except PpError as error:
            log.warning("new code was not fetched: %s", error)
            refusal = str(error)
        await self._sending.code_fetched(message, refusal)

    def _restart(self, sender: str, message: RestartNode) -> None:
        self.successor = self._new_code.successor(message.sha256, message.node_key)
        reason = "new code takes its place" if self.successor else "it has not the code that it is to restart with"
        self._dispatch(machine.StopReceived(sender, message.run_id, reason))
