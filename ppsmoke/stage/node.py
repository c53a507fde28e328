"""The node process of one stage: the driver around the stage machine, the actor, the worker, the edges and the links.

It boots in the order of the design (endpoint, address, join, worker, name, provisioning) and performs the machine's
actions. Payload bytes go from an inbound edge through the worker to an outbound edge and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import OrchestratorLost, PeerLeft, PpError, StageFaulted
from ppsmoke.guarded_tasks import GuardedTasks
from ppsmoke.membership import ENTRY_NAME, EXIT_NAME, Member, SwimMembership, stage_name
from ppsmoke.messages import CONTROL_CHANNEL, OutboundEdgeProvision, ProvisionStage
from ppsmoke.objects import StreamObject, begins_request
from ppsmoke.paths.watch import PathKind
from ppsmoke.roles import Role
from ppsmoke.stage import machine
from ppsmoke.stage.actor import Reset, StageActor, Work
from ppsmoke.stage.boot import bind_endpoint, make_membership, make_mesh
from ppsmoke.stage.control_messages import ControlMessages
from ppsmoke.stage.heard_file import keep_touched
from ppsmoke.stage.neighbour_paths import NeighbourPaths
from ppsmoke.stage.new_code import NewCode, Successor
from ppsmoke.stage.peers import Peers
from ppsmoke.stage.progress import Progress
from ppsmoke.stage.reporting import Reporting
from ppsmoke.stage.sending import Sending
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.stage.stage_state import Phase, StageState
from ppsmoke.stage.stage_worker import StageWorker
from ppsmoke.stage.timing import StepParts, StepTimes
from ppsmoke.stage.wiring import Wiring, WiringDeadlines
from ppsmoke.step_rows import Step
from ppsmoke.transport import Mesh, MeshEvents
from ppsmoke.transport.link import Outage
from ppsmoke.worker_client import WorkerReady

log = logging.getLogger(__name__)

_STEPPING = {Phase.READY, Phase.EXECUTING}  # back and forth with every step: no news
_CLOSE_S = 2.0


class StageNode(MeshEvents):
    """One stage. `run` returns when the run was stopped or raises the error that ended the node; `successor` is then
    the node that is to take this process over, where the orchestrator sent new code.

    `announce` gets the endpoint's ticket once it is bound. Raises JoinRefused, OrchestratorLost, and what makes the
    endpoint impossible; a fault of the stage is reported to the orchestrator and raised as StageFaulted after StopRun.
    """

    def __init__(self, settings: NodeSettings, *, secret_key: bytes, announce: Callable[[str], None]) -> None:
        self._settings = settings
        self._secret_key = secret_key
        self._announce = announce
        self._peers = Peers(settings)
        self._orchestrator = self._peers.orchestrator
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._tasks = GuardedTasks(self._loop, self._work_failed)
        self._stepping = threading.Lock()  # the machine is stepped by the loop and by the data threads
        self._wiring: Wiring | None = None
        self._times = StepTimes()
        self._sending = Sending(settings, self._orchestrator, lost=self.end)
        self.reporting = Reporting(stage=settings.stage, run_id=settings.run_id, send=self._sending.deliver)
        self._provisioned_at = 0.0
        self._worker_ready: WorkerReady | None = None
        self._paths: NeighbourPaths | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._new_code = NewCode()
        # Set in `run`, in this order.
        self._mesh: Mesh
        self._membership: SwimMembership
        self._control: ControlMessages
        self._acceptor: EdgeAcceptor
        self._worker = StageWorker(settings, on_progress=self._report, on_death=self._fail)
        self._starting: asyncio.Task[None] | None = None
        self._actor: StageActor
        self._state: StageState

    # ---- boot

    async def run(self) -> None:
        """Boot, serve one run, stop."""
        settings = self._settings
        endpoint = await bind_endpoint(settings, self._secret_key)
        self._sending.mesh = self._mesh = make_mesh(endpoint, settings, self._peers.name_of, events=self)
        self._state = StageState(
            stage_index=settings.stage,
            stage_count=settings.num_stages,
            node_id=endpoint.node_id,
            orchestrator_id=self._orchestrator,
            expected_run_id=settings.run_id,
        )
        self._membership = make_membership(
            self._mesh, settings, self._orchestrator, on_change=self._member_changed, on_path=self._path_changed
        )
        self._control = ControlMessages(
            settings,
            self._peers,
            self._mesh,
            self._membership,
            self._sending,
            self.reporting,
            self._new_code,
            self._tasks,
            active_run=lambda: self._state.run_id,
            dispatch=self._dispatch,
        )
        self._acceptor = EdgeAcceptor(self._mesh)
        self._mesh.start()
        self._membership.start()
        self._peers.enter(self._mesh, self._membership)
        try:
            self._announce(endpoint.ticket())
            await self._peers.join()
            if settings.heard_file:
                self._tasks.spawn(keep_touched(settings.heard_file, self._peers.hears_orchestrator))
            if self._worker.starts_at_once:
                await self._worker.start()
            else:
                self._starting = self._tasks.spawn(self._worker.start())
            await self._register(stage_name(settings.stage))
            self._tasks.spawn(self.reporting.run(self._mesh.node_id))
            await self._ended
        finally:
            await self._shut_down()
        if self._state.fault is not None:
            raise StageFaulted(self._state.fault, stage=settings.stage)

    @property
    def successor(self) -> Successor | None:
        """See the class."""
        return self._control.successor

    def learn_peers(self, tickets: Sequence[str]) -> None:
        """Addresses of peers that were not known when this node began. Raises BadNodeEnvironment for what is none."""
        self._peers.learn(tickets)

    async def _register(self, name: str) -> None:
        await self._membership.register(name, deadline_s=self._settings.join_timeout)

    # ---- the machine's driver

    def _dispatch(self, event: machine.Event) -> None:
        """In the event loop."""
        for action in self._step(event):
            self._perform(action)

    def _dispatch_in_thread(self, event: machine.Event) -> None:
        """In a data thread: what concerns its step is done here, everything else in the event loop."""
        for action in self._step(event):
            match action:
                case machine.ForgetRequest(request_id):
                    self._actor.handle(Reset(request_id))
                case machine.ExecuteStep(handle):
                    self._need_wiring().execute(handle)
                case machine.ReleaseInput(handle):
                    self._need_wiring().release(handle)
                case _:
                    self._loop.call_soon_threadsafe(self._perform, action)

    def _step(self, event: machine.Event) -> tuple[machine.Action, ...]:
        with self._stepping:
            before = self._state.phase
            self._state, actions = machine.step(self._state, event)
            after = self._state.phase
        if after is not before and {before, after} != _STEPPING:
            log.info("%s -> %s", before.value, after.value)
            self.reporting.note(f"{before.value} -> {after.value}", "detail")
        return actions

    def _perform(self, action: machine.Action) -> None:
        match action:
            case machine.PrepareWorker(message):
                self._wiring = self._make_wiring(message)
                self._paths = NeighbourPaths(self._mesh, message, self._sending.send)
                self._measuring = self._tasks.spawn(self._paths.measure())
                self._tasks.spawn(self._prepare_worker(self._wiring, message))
            case machine.OpenEdges(message):
                self._tasks.spawn(self._open_edges(self._need_wiring(), message))
            case machine.EmitReady(run_id):
                self._tasks.spawn(self._emit_ready(run_id))
            case machine.EmitFault() as fault:
                self._tasks.spawn(self._emit_fault(fault))
            case machine.StopEdges(reason):
                self._tasks.spawn(self._stop_edges(reason))
            case machine.ResetWorker():
                self._tasks.spawn(self._stop_worker())
            case machine.EmitStopped(run_id):
                self._tasks.spawn(self._emit_stopped(run_id))
            case machine.Refuse(sender, reason):
                log.warning("%s%s", f"from {self._peers.name_of(sender)}: " if sender else "", reason)

    def _fail(self, error: PpError) -> None:
        self._dispatch(machine.Failed(str(error), error.code, error.log_tail, error.remedy, error.phase))

    def _work_failed(self, error: Exception) -> None:
        if isinstance(error, PpError):
            log.error("%s", error)
            self._fail(error)
            return
        log.exception("unexpected failure")
        self._fail(StageFaulted(f"stage {self._settings.stage}: {type(error).__name__}: {error}"))

    # ---- preparing

    def _make_wiring(self, message: ProvisionStage) -> Wiring:
        return Wiring(
            self._mesh,
            self._membership,
            self._acceptor,
            message,
            WiringDeadlines(
                name_s=self._settings.join_timeout,
                open_s=self._settings.ready_timeout,
                resume_s=self._settings.silence_limit,
            ),
            ready=lambda edge_id: self._dispatch(machine.EdgeReady(edge_id)),
            faulted=self._fail,
            resumed=self._edge_resumed,
            load=lambda handle: self._dispatch_in_thread(machine.ObjectLoaded(handle)),
            begin=self._begin,
            finish=self._finish,
            done=lambda handle: self._dispatch_in_thread(machine.StepDone(handle)),
            leave=self._worker.leave,
        )

    def _edge_resumed(self, edge: OutboundEdgeProvision, outage: Outage) -> None:
        self._tasks.spawn(self._sending.edge_resumed(edge, outage))

    def _report(self, progress: Progress) -> None:
        self._tasks.spawn(self._sending.progress(progress.text, progress))

    async def _prepare_worker(self, wiring: Wiring, message: ProvisionStage) -> None:
        self._provisioned_at = time.monotonic()
        self._tasks.spawn(self._sending.progress("loading and compiling"))
        self._worker_ready = await self._worker.prepare(message)
        self._report(Progress("linking with its neighbours", "linking"))
        self._actor = StageActor(
            stage_index=message.stage_index,
            stage_count=message.stage_count,
            worker=self._worker.process.steps,
            generation=message.generation,
            context=message.model.max_seq_len,
            log=log.warning,
            on_worker_news=self._fail,
        )
        self._actor.handle(wiring.neighbors())
        self._dispatch(machine.WorkerPrepared())

    async def _open_edges(self, wiring: Wiring, message: ProvisionStage) -> None:
        for edge in message.inbound:
            self._tasks.spawn(wiring.serve_inbound(edge.edge_id))
        await wiring.open_outbound()

    async def _emit_ready(self, run_id: str) -> None:
        ready = self._worker_ready
        assert ready is not None
        role = self._settings.role
        assert self._measuring is not None
        await asyncio.wait((self._measuring,))
        await self._sending.ready(run_id, ready, self._provisioned_at)
        if role is Role.LAST:
            await self._register(EXIT_NAME)
        elif role is Role.FIRST:
            # Last of all, so that whoever finds the entry finds a chain that is ready.
            await self._membership.wait_name(EXIT_NAME, deadline_s=self._settings.ready_timeout)
            await self._register(ENTRY_NAME)

    # ---- executing

    def _begin(self, kind: type[Work], record: bytes) -> bool:
        """Have the worker begin at once where all says that the machine will agree: it judges meanwhile.

        Not with a request's first object: it may have to wait, and what the worker keeps of the former goes first.
        """
        if self._state.phase is not Phase.READY or begins_request(record):
            return False
        return self._actor.begin(kind, record)

    def _finish(self, kind: type[Work], record: bytes, obj: StreamObject, begun: bool, arrived: float) -> None:
        """The rest of one step, in the data thread of the edge its object came on at `arrived`."""
        if not begun and not self._actor.begin(kind, record):
            return
        self._actor.finish(obj)
        stamps = self._worker.process.steps.stamps
        written = max(stamps.back, self._need_wiring().first_written or 0.0)
        parts = StepParts(
            inward=stamps.began - arrived,
            compute=stamps.done - stamps.began,
            outward=stamps.back - stamps.done,
            write=written - stamps.back,
        )
        self._times.add(parts, arrived, is_prefill=obj.sequence == 0)
        times = (arrived, stamps.began, stamps.done, stamps.back, written)
        self.reporting.step(Step(obj.request_id, obj.sequence, obj.part, obj.seq_len, *times))

    # ---- ending

    async def _stop_edges(self, reason: str) -> None:
        self._worker.abandon()
        if self._wiring is not None:
            await self._wiring.close(reason)
        self._dispatch(machine.EdgesStopped())

    async def _stop_worker(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        computing = self._wiring is not None and self._wiring.computing
        await self._worker.stop(0.0 if computing else self._settings.stop_timeout)
        self._dispatch(machine.WorkerReset())

    async def _emit_fault(self, fault: machine.EmitFault) -> None:
        await self.reporting.flush(self._mesh.node_id)
        await self._sending.fault(fault)

    async def _emit_stopped(self, run_id: str) -> None:
        await self.reporting.flush(self._mesh.node_id)
        await self._sending.stopped(run_id, self._times.summary())
        if not self._ended.done():
            self._ended.set_result(None)

    def kill_worker(self) -> None:
        """See StageWorker.kill."""
        self._worker.kill()

    def end(self, error: PpError) -> None:
        """End the node now, with this error, unless it has ended."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _shut_down(self) -> None:
        self._tasks.cancel()
        self._worker.abandon()
        if self._wiring is not None:
            await self._wiring.halt()
        await self._new_code.close()
        await self._worker.stop(0.0)
        await self._membership.close()
        await self._mesh.close(self._state.fault or "stopped", deadline_s=_CLOSE_S)

    # ---- links

    def link_up(self, node_id: str) -> None:
        # Its word that it goes on may have been lost with the connection; who is stopped shakes no hands.
        if node_id == self._orchestrator:
            self._control.orchestrator_goes_on()

    def link_down(self, node_id: str, reason: PpError) -> None:
        # A goodbye counts at once; whether a link that broke means a death, membership finds out.
        if node_id == self._orchestrator and isinstance(reason, PeerLeft):
            self._orchestrator_gone(str(reason))

    def _member_changed(self, before: Member | None, member: Member) -> None:
        if before is None or (before.state, before.incarnation) != (member.state, member.incarnation):
            self.reporting.member_seen(member)
        if member.node_id == self._orchestrator and member.state in ("dead", "left"):
            self._orchestrator_gone(member.reason)

    def _path_changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        if self._paths is not None:
            self._tasks.spawn(self._paths.changed(node_id, before, after))

    def _orchestrator_gone(self, reason: str) -> None:
        self.end(OrchestratorLost(f"the orchestrator is gone: {reason}", stage=self._settings.stage))

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel == CONTROL_CHANNEL:
            self._control.take(node_id, body)

    def _need_wiring(self) -> Wiring:
        assert self._wiring is not None
        return self._wiring
