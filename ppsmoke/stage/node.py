"""The node process of one stage: the driver around the stage machine, the actor, the worker, the edges and the links.

It boots in the order of the design (endpoint, address, join, worker, name, provisioning) and performs the machine's
actions. Payload bytes go from an inbound edge through the worker to an outbound edge and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ppsmoke import __version__
from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import (
    BadNodeEnvironment,
    DeadlineExceeded,
    JoinRefused,
    MalformedRequest,
    OrchestratorLost,
    PeerLeft,
    PeerLost,
    PpError,
    StageFaulted,
)
from ppsmoke.membership import ENTRY_NAME, EXIT_NAME, Member, SwimMembership, local_config, stage_name, wan_config
from ppsmoke.messages import (
    CONTROL_CHANNEL,
    ClockProbe,
    CodeFetched,
    EdgeResumed,
    FetchCode,
    OutboundEdgeProvision,
    PauseRun,
    ProvisionStage,
    RestartNode,
    ResumeRun,
    StageFault,
    StageMessage,
    StagePaused,
    StageProgress,
    StageReady,
    StageStopped,
    StopRun,
    decode_message,
    encode_message,
)
from ppsmoke.objects import StreamObject, begins_request
from ppsmoke.paths.watch import PathKind
from ppsmoke.roles import Role
from ppsmoke.stage import machine
from ppsmoke.stage.actor import Reset, StageActor, Work
from ppsmoke.stage.heard_file import keep_touched
from ppsmoke.stage.neighbour_paths import NeighbourPaths
from ppsmoke.stage.new_code import NewCode, Successor
from ppsmoke.stage.progress import Progress
from ppsmoke.stage.reporting import Reporting
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.stage.stage_worker import StageWorker
from ppsmoke.stage.timing import StepParts, StepTimes
from ppsmoke.stage.wiring import Wiring, WiringDeadlines
from ppsmoke.step_rows import Step
from ppsmoke.transport import Endpoint, Mesh, MeshEvents, Refused, TicketInvalid, parse_ticket
from ppsmoke.transport.link import Outage
from ppsmoke.worker_client import WorkerReady

log = logging.getLogger(__name__)

_STEPPING = {machine.Phase.READY, machine.Phase.EXECUTING}  # back and forth with every step: no news
_SEND_S = 5.0
_FAR_SEND_S = 15.0  # a dial over a relay may take ten of them
_HEARD_S = 120.0
_LONGEST_REFUSAL = 1000
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
        self._orchestrator = _node_of("SEED_ADDR", settings.seed_addr)
        self._names: dict[str, str] = {self._orchestrator: "orchestrator"}
        self._peers = _tickets_by_node(settings.peer_direct)
        self._reachable = False
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stepping = threading.Lock()  # the machine is stepped by the loop and by the data threads
        self._wiring: Wiring | None = None
        self._times = StepTimes()
        self.reporting = Reporting(stage=settings.stage, run_id=settings.run_id, send=self._deliver)
        self._provisioned_at = 0.0
        self._worker_ready: WorkerReady | None = None
        self._paths: NeighbourPaths | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._new_code = NewCode()
        self.successor: Successor | None = None
        # Set in `run`, in this order.
        self._mesh: Mesh
        self._membership: SwimMembership
        self._acceptor: EdgeAcceptor
        self._worker = StageWorker(settings, on_progress=self._report, on_death=self._fail)
        self._starting: asyncio.Task[None] | None = None
        self._actor: StageActor
        self._state: machine.StageState

    # ---- boot

    async def run(self) -> None:
        """Boot, serve one run, stop."""
        settings = self._settings
        endpoint = await Endpoint.bind(
            self._secret_key,
            loopback_only=not settings.far,
            relay_urls=settings.seed_relay,
            relay_token=settings.relay_token,
            udp_port=settings.udp_port,
        )
        if settings.mapped_address is not None:
            log.info("reached from outside at %s", settings.mapped_address)
            await endpoint.add_external(settings.mapped_address)
        self._mesh = Mesh(
            endpoint,
            run_id=settings.run_id,
            join_token=bytes.fromhex(settings.join_token),
            tool_version=__version__,
            name_of=self._name_of,
            admit=self._admit,
            events=self,
        )
        self._state = machine.StageState(
            stage_index=settings.stage,
            stage_count=settings.num_stages,
            node_id=endpoint.node_id,
            orchestrator_id=self._orchestrator,
            expected_run_id=settings.run_id,
        )
        self._membership = SwimMembership(
            self._mesh,
            orchestrator_id=self._orchestrator,
            stage_index=settings.stage,
            stage_count=settings.num_stages,
            config=(wan_config if settings.far else local_config)(settings.silence_limit),
            on_change=self._member_changed,
            on_path=self._path_changed,
        )
        self._acceptor = EdgeAcceptor(self._mesh)
        self._mesh.start()
        self._membership.start()
        self._reachable = True
        try:
            self._announce(endpoint.ticket())
            await self._join()
            if settings.heard_file:
                self._spawn(keep_touched(settings.heard_file, self._hears_orchestrator))
            if self._worker.starts_at_once:
                await self._worker.start()
            else:
                self._starting = self._spawn(self._worker.start())
            await self._register(stage_name(settings.stage))
            self._spawn(self.reporting.run(self._mesh.node_id))
            await self._ended
        finally:
            await self._shut_down()
        if self._state.fault is not None:
            raise StageFaulted(self._state.fault, stage=settings.stage)

    async def _join(self) -> None:
        settings = self._settings
        self._mesh.learn_address(self._orchestrator, settings.seed_addr)
        for node_id, ticket in self._peers.items():
            self._mesh.learn_address(node_id, ticket)
        try:
            await self._membership.join(deadline_s=settings.join_timeout)
            await self._membership.wait_alive(1, deadline_s=settings.join_timeout)
        except JoinRefused:
            raise
        except (PeerLost, DeadlineExceeded) as error:
            raise OrchestratorLost(
                f"stage {settings.stage} could not join the orchestrator: {error}", stage=settings.stage, phase="join"
            ) from error

    def _hears_orchestrator(self) -> bool:
        """That it counts as alive is not enough: nothing may depend on a membership that still works."""
        member = self._membership.members().get(self._orchestrator)
        alive = member is not None and member.state == "alive"
        return alive and self._membership.heard_within(self._orchestrator, _HEARD_S)

    def learn_peers(self, tickets: Sequence[str]) -> None:
        """Addresses of peers that were not known when this node began. Raises BadNodeEnvironment for what is none."""
        known = _tickets_by_node(tickets)
        self._peers |= known
        if self._reachable:
            for node_id, ticket in known.items():
                self._mesh.learn_address(node_id, ticket)

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
                self._paths = NeighbourPaths(self._mesh, message, self._send)
                self._measuring = self._spawn(self._paths.measure())
                self._spawn(self._prepare_worker(self._wiring, message))
            case machine.OpenEdges(message):
                self._spawn(self._open_edges(self._need_wiring(), message))
            case machine.EmitReady(run_id):
                self._spawn(self._emit_ready(run_id))
            case machine.EmitFault() as fault:
                self._spawn(self._emit_fault(fault))
            case machine.StopEdges(reason):
                self._spawn(self._stop_edges(reason))
            case machine.ResetWorker():
                self._spawn(self._stop_worker())
            case machine.EmitStopped(run_id):
                self._spawn(self._emit_stopped(run_id))
            case machine.Refuse(sender, reason):
                log.warning("%s%s", f"from {self._name_of(sender)}: " if sender else "", reason)

    def _fail(self, error: PpError) -> None:
        self._dispatch(machine.Failed(str(error), error.code, error.log_tail, error.remedy, error.phase))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`; whatever it raises is a fault of this stage."""
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PpError as error:
            log.error("%s", error)
            self._fail(error)
        except Exception as error:
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
        self._spawn(
            self._send(
                EdgeResumed(
                    run_id=self._settings.run_id,
                    stage_index=self._settings.stage,
                    node_id=self._mesh.node_id,
                    edge_id=edge.edge_id,
                    stall_s=outage.stall_s,
                    before=outage.before,
                    after=outage.after,
                )
            )
        )

    async def _prepare_worker(self, wiring: Wiring, message: ProvisionStage) -> None:
        self._provisioned_at = time.monotonic()
        self._tell("loading and compiling")
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
            self._spawn(wiring.serve_inbound(edge.edge_id))
        await wiring.open_outbound()

    async def _emit_ready(self, run_id: str) -> None:
        ready = self._worker_ready
        assert ready is not None
        role = self._settings.role
        assert self._measuring is not None
        await asyncio.wait((self._measuring,))
        await self._send(
            StageReady(
                run_id=run_id,
                stage_index=self._settings.stage,
                node_id=self._mesh.node_id,
                device=ready.device or "",
                timings={
                    "load": ready.load_s,
                    "compile": ready.compile_s,
                    "ready": time.monotonic() - self._provisioned_at,
                },
            )
        )
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
        if self._state.phase is not machine.Phase.READY or begins_request(record):
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

    # ---- new code

    async def _fetch_code(self, message: FetchCode) -> None:
        refusal = ""
        try:
            await self._new_code.fetch(message, self._settings.ready_timeout)
        except PpError as error:
            log.warning("new code was not fetched: %s", error)
            refusal = str(error)[:_LONGEST_REFUSAL]
        await self._send(
            CodeFetched(
                run_id=message.run_id,
                stage_index=self._settings.stage,
                node_id=self._mesh.node_id,
                sha256=message.sha256,
                refusal=refusal,
            )
        )

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
        await self._send(
            StageFault(
                run_id=fault.run_id,
                stage_index=self._settings.stage,
                node_id=self._mesh.node_id,
                reason=fault.reason,
                code=fault.code,
                log_tail=fault.log_tail,
                remedy=fault.remedy or "",
                phase=fault.phase or "",
            )
        )

    async def _emit_stopped(self, run_id: str) -> None:
        await self.reporting.flush(self._mesh.node_id)
        await self._send(
            StageStopped(
                run_id=run_id,
                stage_index=self._settings.stage,
                node_id=self._mesh.node_id,
                timings=self._times.summary(),
            )
        )
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
        for task in list(self._tasks):
            task.cancel()
        self._worker.abandon()
        if self._wiring is not None:
            await self._wiring.halt()
        await self._new_code.close()
        await self._worker.stop(0.0)
        await self._membership.close()
        await self._mesh.close(self._state.fault or "stopped", deadline_s=_CLOSE_S)

    # ---- links

    async def _deliver(self, message: StageMessage) -> None:
        send_s = max(_FAR_SEND_S if self._settings.far else _SEND_S, self._settings.silence_limit)
        await self._mesh.send(self._orchestrator, CONTROL_CHANNEL, encode_message(message), deadline_s=send_s)

    async def _send(self, message: StageMessage) -> None:
        try:
            await self._deliver(message)
        except PpError as error:
            # Without its orchestrator a stage has nobody to report to.
            self.end(OrchestratorLost(f"{message.type} could not be delivered: {error}", stage=self._settings.stage))

    def _report(self, progress: Progress) -> None:
        self._tell(progress.text, progress)

    def _tell(self, text: str, progress: Progress | None = None) -> None:
        message = StageProgress(
            run_id=self._settings.run_id,
            stage_index=self._settings.stage,
            node_id=self._mesh.node_id,
            phase=text,
        )
        if progress is not None:
            message = message.replace(
                state=progress.state, done=progress.done, total=progress.total, unit=progress.unit
            )
        self._spawn(self._send(message))

    def link_up(self, node_id: str) -> None:
        # Its word that it goes on may have been lost with the connection; who is stopped shakes no hands.
        if node_id == self._orchestrator:
            self._orchestrator_goes_on()

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
            self._spawn(self._paths.changed(node_id, before, after))

    def _orchestrator_gone(self, reason: str) -> None:
        self.end(OrchestratorLost(f"the orchestrator is gone: {reason}", stage=self._settings.stage))

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CONTROL_CHANNEL:
            return
        try:
            decoded = decode_message(body)
        except MalformedRequest as error:
            log.warning("from %s: %s", self._name_of(node_id), error)
            return
        match decoded:
            case ProvisionStage():
                self._dispatch(machine.ProvisionReceived(node_id, decoded))
            case PauseRun() | ResumeRun():
                self._orchestrator_pauses(node_id, decoded)
            case StopRun(run_id=run_id, reason=reason):
                self._dispatch(machine.StopReceived(node_id, run_id, reason))
            case ClockProbe() if node_id == self._orchestrator:
                self._spawn(self.reporting.answer(decoded, self._mesh.node_id))
            case FetchCode() | RestartNode() if node_id != self._orchestrator or decoded.run_id != self._state.run_id:
                log.warning("refused %s from %s", decoded.type, self._name_of(node_id))
            case FetchCode():
                self._spawn(self._fetch_code(decoded))
            case RestartNode(sha256=sha256, node_key=node_key):
                self.successor = self._new_code.successor(sha256, node_key)
                reason = (
                    "new code takes its place" if self.successor else "it has not the code that it is to restart with"
                )
                self._dispatch(machine.StopReceived(node_id, decoded.run_id, reason))
            case _:
                log.warning("dropped %s from %s: it is not for a stage", decoded.type, self._name_of(node_id))

    def _orchestrator_pauses(self, sender: str, message: PauseRun | ResumeRun) -> None:
        """Its process stops or goes on: its silence in between is no death."""
        if sender != self._orchestrator or message.run_id != self._settings.run_id:
            log.warning("dropped %s from %s: it is not this run's orchestrator", message.type, self._name_of(sender))
            return
        if isinstance(message, ResumeRun):
            self._orchestrator_goes_on()
            return
        log.info("the orchestrator's process is stopped")
        self._membership.hold()
        self._mesh.stopped.add(sender)
        run_id, stage = self._settings.run_id, self._settings.stage
        self._spawn(self._send(StagePaused(run_id=run_id, stage_index=stage, node_id=self._mesh.node_id)))

    def _orchestrator_goes_on(self) -> None:
        if self._membership.is_held:
            log.info("the orchestrator goes on")
            self._membership.go_on()
            self._mesh.stopped.discard(self._orchestrator)

    def _admit(self, node_id: str) -> Refused | None:
        return None  # the join token was proven; what a peer may do depends on the plan

    def _name_of(self, node_id: str) -> str:
        if node_id not in self._names and hasattr(self, "_membership"):
            member = self._membership.members().get(node_id)
            if member is not None and member.stage_index is not None:
                self._names[node_id] = f"stage {member.stage_index}"
        return self._names.get(node_id, f"node {node_id[:8]}")

    def _need_wiring(self) -> Wiring:
        assert self._wiring is not None
        return self._wiring


def _tickets_by_node(tickets: Sequence[str]) -> dict[str, str]:
    return {_node_of("PEER_DIRECT", ticket): ticket for ticket in tickets}


def _node_of(variable: str, ticket: str) -> str:
    try:
        return parse_ticket(ticket)[0]
    except TicketInvalid as error:
        raise BadNodeEnvironment(f"{variable}: {error}", remedy="Give the ticket that the peer printed.") from None
