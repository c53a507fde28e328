"""One local run: the driver around the orchestrator's machine. It spawns the nodes, wires the token ends, watches for
every kind of death and deadline, and ends what it began, whatever happened.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import (
    DeadlineExceeded,
    EdgeFaulted,
    LeftBehind,
    MalformedRequest,
    PeerLost,
    PpError,
    RunFailed,
    StageFaulted,
    error_class,
)
from ppsmoke.membership import ENTRY_NAME, ORCHESTRATOR_NAME, Member, SeedMembership, stage_name
from ppsmoke.messages import (
    ProvisionStage,
    StageFault,
    StageProgress,
    StageReady,
    StageStopped,
    StopRun,
    decode_message,
    encode_message,
)
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.children import Child, ChildNode
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.node_environment import node_environment
from ppsmoke.orchestrator.options import OutputGone, RunOptions, View
from ppsmoke.orchestrator.result import RunResult, StageTimes
from ppsmoke.orchestrator.text_stream import TextStream
from ppsmoke.orchestrator.token_ends import TokenEnds
from ppsmoke.plan import RunPlan, build_plan, provision_stage
from ppsmoke.request import model_plan
from ppsmoke.resources import ResourceBook
from ppsmoke.signals import ENDING_SIGNALS, interruption
from ppsmoke.transport import Endpoint, Mesh, MeshEvents, Refused, node_id_of

CONTROL = "control"
_SEND_S = 5.0
_CLOSE_S = 2.0
_ROOT_CAUSE_S = 0.5


class LocalRun(MeshEvents):
    """`execute` runs once and always returns a result; its `error` says what went wrong, if anything did."""

    def __init__(
        self, options: RunOptions, view: View, *, make_child: Callable[[int, Path], Child] = ChildNode
    ) -> None:
        self._options = options
        self._make_child = make_child
        self._view = view
        self._book = ResourceBook()
        self._keys = [secrets.token_bytes(32) for _ in range(options.num_stages)]
        self._key = secrets.token_bytes(32)
        self._join_token = secrets.token_hex(32)
        self._children: list[Child] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress: dict[int, str] = {}
        self._text = TextStream(options.model.detokenizer(), view)
        self._suspected: PpError | None = None
        self._deadline = PhaseDeadline(self._deadline_passed)
        self._ended_at: float | None = None
        self._signals_seen = 0
        self._provisioned_at = 0.0
        # Set when the run begins.
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._state: machine.RunState
        self._mesh: Mesh
        self._membership: SeedMembership
        self._acceptor: EdgeAcceptor
        self._ends: TokenEnds | None = None
        self.result = RunResult(
            run_id=options.run_id,
            model_id=options.model.model_id,
            num_stages=options.num_stages,
            prompt_tokens=len(options.prompt_tokens),
        )

    async def execute(self) -> RunResult:
        """Run to the end and verify that nothing is left."""
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        started = time.monotonic()
        try:
            plan = self._plan()
            self._state = machine.RunState(plan=plan)
            for number in ENDING_SIGNALS:
                self._loop.add_signal_handler(number, self._on_signal, number)
            self.result.times.stages = [
                StageTimes(s.stage_index, (s.layer_start, s.layer_end_exclusive)) for s in plan.stages
            ]
            if self._options.deadlines.budget is not None:
                self._loop.call_later(self._options.deadlines.budget, self._budget_spent)
            self._spawn(self._boot())
            await self._finished
        except PpError as error:
            self.result.error = error
        ended = self._ended_at or time.monotonic()
        await self._tear_down_processes()
        self.result.times.teardown = time.monotonic() - ended
        self.result.times.total = time.monotonic() - started
        self._collect()
        return self.result

    def _plan(self) -> RunPlan:
        options = self._options
        return build_plan(
            run_id=options.run_id,
            model=model_plan(options.model, options.context),
            generation=options.generation,
            orchestrator_id=node_id_of(self._key),
            node_ids=[node_id_of(key) for key in self._keys],
        )

    # ---- boot

    async def _boot(self) -> None:
        deadlines = self._options.deadlines
        began = time.monotonic()
        plan = self._state.plan
        endpoint = await Endpoint.bind(self._key, loopback_only=True)
        self._mesh = Mesh(
            endpoint,
            run_id=plan.run_id,
            join_token=bytes.fromhex(self._join_token),
            tool_version=__version__,
            name_of=self._name_of,
            admit=self._admit,
            events=self,
            silence_limit_s=deadlines.silence,
        )
        self._book.enter("endpoint", "orchestrator", self._close_mesh, deadline_s=_CLOSE_S * 2)
        self._membership = SeedMembership(
            self._mesh,
            names=frozenset({ORCHESTRATOR_NAME}),
            on_change=self._member_changed,
            planned={stage.node_id: stage.stage_index for stage in plan.stages},
        )
        self._acceptor = EdgeAcceptor(self._mesh)
        self._mesh.start()
        await self._spawn_nodes(endpoint.ticket())
        self.result.times.spawn = time.monotonic() - began
        self._deadline.arm(deadlines.join, "join")
        self._view.waiting("waiting for the stages to join")
        joined = time.monotonic()
        for index, stage in enumerate(plan.stages):
            # The deadline that matters is the phase's, armed above: it names who is missing.
            found = await self._membership.wait_name(stage_name(index), deadline_s=deadlines.join * 2)
            if found != stage.node_id:
                raise RunFailed(f"{stage_name(index)} is held by {self._name_of(found)}", stage=index, phase="join")
        self.result.times.join = time.monotonic() - joined
        self._dispatch(machine.ClusterFormed())

    async def _spawn_nodes(self, seed_ticket: str) -> None:
        tickets: list[str] = []
        for index in range(self._options.num_stages):
            self._view.waiting(f"starting stage {index}")
            child = self._make_child(index, self._options.log_dir / f"stage-{index}.log")
            self._children.append(child)
            self._book.enter("process", f"of stage {index}", child.end, deadline_s=10.0)
            environment = node_environment(
                self._options,
                index,
                inherited=os.environ,
                seed_ticket=seed_ticket,
                earlier_tickets=tickets,
                node_key=self._keys[index],
                join_token=self._join_token,
            )
            await child.start(environment)
            child.exited.add_done_callback(partial(self._child_ended, child))
            tickets.append(await child.address(self._options.deadlines.boot))
            self._view.detail(f"stage {index}: node {self._state.plan.stages[index].node_id[:8]}, pid {child.pid}")

    # ---- the machine's driver

    def _dispatch(self, event: machine.Event) -> None:
        before = self._state.phase
        self._state, actions = machine.step(self._state, event)
        if self._state.phase is not before:
            self._phase_changed(before)
        for action in actions:
            self._perform(action)

    def _phase_changed(self, before: machine.Phase) -> None:
        phase, deadlines = self._state.phase, self._options.deadlines
        self._view.detail(f"{before.value} -> {phase.value}")
        match phase:
            case machine.Phase.PROVISIONING:
                self._deadline.arm(deadlines.ready, "preparing the stages")
            case machine.Phase.RUNNING:
                self.result.times.ready = time.monotonic() - self._provisioned_at
                self._view.waiting("waiting for the first token")
                self.result.times.prompt_at = time.monotonic()
                self._deadline.arm(deadlines.response, "the first token")
            case machine.Phase.TEARING_DOWN:
                self._ended_at = time.monotonic()
                self._view.settle()
                self._deadline.arm(deadlines.stop, "stopping")
            case machine.Phase.DONE:
                self._deadline.disarm()

    def _perform(self, action: machine.Action) -> None:
        match action:
            case machine.ProvisionStages():
                self._spawn(self._provision())
            case machine.InjectPrompt():
                assert self._ends is not None
                self._spawn(self._ends.inject_prompt())
            case machine.InjectToken(sequence, token):
                assert self._ends is not None
                self._spawn(self._ends.inject_token(sequence, token))
            case machine.EmitToken(token, finish_reason):
                self._take_token(token, last=finish_reason is not None)
            case machine.StopStage(index, reason):
                self._spawn(self._stop_stage(index, reason))
            case machine.CloseTokenEnds(reason):
                self._spawn(self._close_token_ends(reason))
            case machine.Finish():
                if not self._finished.done():
                    self._finished.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PpError as error:
            self._fault(error)
        except Exception as error:
            failure = RunFailed(f"unexpected {type(error).__name__}: {error}", remedy="Run again with --debug.")
            failure.__cause__ = error
            failure.__traceback__ = error.__traceback__
            self._fault(failure)

    async def _provision(self) -> None:
        plan, options = self._state.plan, self._options
        self._provisioned_at = time.monotonic()
        self._ends = TokenEnds(
            self._mesh,
            self._acceptor,
            plan,
            request_id=secrets.token_hex(16),
            prompt=options.prompt_tokens,
            prefill_part=options.prefill_part,
        )
        await asyncio.gather(
            *(self._tell(stage.stage_index, provision_stage(plan, stage.stage_index)) for stage in plan.stages)
        )
        self._spawn(self._open_token_in(self._ends))
        self._spawn(self._consume(self._ends))
        self._spawn(self._find_entry())
        self._dispatch(machine.Provisioned())
        self._show_waiting()

    async def _open_token_in(self, ends: TokenEnds) -> None:
        await ends.producer.open(self._options.deadlines.ready)
        ends.producer.faulted.add_done_callback(self._edge_faulted)
        self._dispatch(machine.ConditionMet(machine.Condition.TOKEN_PRODUCER))

    def _edge_faulted(self, faulted: asyncio.Future[EdgeFaulted]) -> None:
        if not faulted.cancelled():
            self._fault(faulted.result())

    async def _find_entry(self) -> None:
        found = await self._membership.wait_name(ENTRY_NAME, deadline_s=self._options.deadlines.ready)
        first = self._state.plan.stages[0].node_id
        if found != first:
            raise RunFailed(f"{ENTRY_NAME} is {self._name_of(found)}, not stage 0", phase="resolve the entry")
        self._dispatch(machine.ConditionMet(machine.Condition.ENTRY))

    async def _consume(self, ends: TokenEnds) -> None:
        await ends.consumer.wait_ready(self._options.deadlines.ready)
        self._dispatch(machine.ConditionMet(machine.Condition.TOKEN_CONSUMER))
        async for obj in ends.tokens():
            self._deadline.disarm()
            self._dispatch(machine.TokenConsumed(obj.sequence, obj.tokens[0], obj.finish_reason))
            try:
                await self._text.flush()
            except OutputGone:
                self._dispatch(machine.OutputClosed())
            if self._state.phase is not machine.Phase.RUNNING:
                return
            # Not before the text was taken: a slow reader is not a slow chain.
            self._deadline.arm(self._options.deadlines.token, f"token {len(self._state.tokens)}")
        self._fault(EdgeFaulted("the last stage ended its TokenOut edge before the text was over"))

    def _take_token(self, token: int, *, last: bool) -> None:
        if not self.result.times.tokens_at:
            self._view.settle()
        self.result.times.tokens_at.append(time.monotonic())
        self._text.push(token, last=last)

    # ---- faults and deadlines

    def _fault(self, error: PpError) -> None:
        """Report a failure to the machine. A broken link or edge is mostly the shadow of a death: wait a moment for
        the news of that death, so that the run names the stage that died and not its neighbour."""
        if error.phase is None:
            error.phase = self._state.doing
        if not isinstance(error, PeerLost | EdgeFaulted):
            self._dispatch(machine.Faulted(error))
        elif self._suspected is None:
            self._suspected = error
            self._loop.call_later(_ROOT_CAUSE_S, lambda: self._dispatch(machine.Faulted(error)))

    def _deadline_passed(self, seconds: float, what: str) -> None:
        if self._state.phase is machine.Phase.TEARING_DOWN:
            for index in sorted(self._state.stages_awaited):
                self._view.line(f"stage {index} did not stop within {seconds:g} s; it will be killed")
                self._dispatch(machine.StageHasStopped(index))
            self._dispatch(machine.TokenEndsClosed())
            return
        missing = self._missing()
        stage = missing[0] if missing else None
        doing = f" ({self._progress[stage]})" if stage in self._progress else ""
        who = f": no sign of {', '.join(f'stage {i}' for i in missing)}{doing}" if missing else ""
        self._dispatch(
            machine.Faulted(
                DeadlineExceeded(
                    f"{what} took longer than {seconds:g} s{who}",
                    stage=stage,
                    phase=what,
                    log_tail=self._children[stage].log_tail() if stage is not None and self._children else (),
                )
            )
        )

    def _missing(self) -> list[int]:
        if self._state.phase is machine.Phase.PLANNING:
            stages = range(self._options.num_stages)
            return [index for index in stages if self._membership.resolve(stage_name(index)) is None]
        return sorted(self._state.stages_awaited)

    def _budget_spent(self) -> None:
        phase = self._state.doing
        what = f"the budget of {self._options.deadlines.budget:g} s is spent in {phase}"
        self._dispatch(machine.Faulted(DeadlineExceeded(what, phase=phase)))

    def _child_ended(self, child: Child, exited: asyncio.Future[int]) -> None:
        if not exited.cancelled():
            error = child.death()
            error.phase = self._state.doing
            self._dispatch(machine.Faulted(error))
            self._dispatch(machine.StageHasStopped(child.stage_index))

    def _member_changed(self, old: Member | None, new: Member) -> None:
        if new.state == "alive" or new.stage_index is None:
            return
        self._fault(PeerLost(f"stage {new.stage_index} is {new.state}: {new.reason}", stage=new.stage_index))

    def _on_signal(self, number: int) -> None:
        self._signals_seen += 1
        name = signal.Signals(number).name
        if self._signals_seen > 1:
            # Twice means now: every process of the run is killed, and that is verified as always.
            self._view.line(f"{name} again: killing every process of the run")
            for child in self._children:
                child.kill()
            if not self._finished.done():
                self._finished.set_result(None)
            return
        self._view.settle()
        self._view.line(f"{name}: stopping {len(self._children)} stages")
        self._dispatch(machine.Faulted(interruption(number, self._state.doing)))

    # ---- news from the stages

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CONTROL:
            return
        try:
            message = decode_message(body)
        except MalformedRequest as error:
            self._fault(PeerLost(f"{self._name_of(node_id)} sent a message that is none: {error}"))
            return
        if isinstance(message, ProvisionStage | StopRun):
            self._view.detail(f"dropped {message.type} from {self._name_of(node_id)}")
            return
        index = message.stage_index
        if index >= len(self._state.plan.stages) or self._state.plan.stages[index].node_id != node_id:
            self._view.detail(f"dropped {message.type} from {self._name_of(node_id)}: not its stage")
            return
        match message:
            case StageProgress(phase=phase):
                self._progress[index] = phase
                self._view.detail(f"stage {index}: {phase}")
                self._show_waiting()
            case StageReady():
                self._stage_ready(message)
            case StageFault():
                self._fault(stage_fault_error(message))
            case StageStopped(timings=timings):
                times = self.result.times.stages[index]
                times.prefill = timings.get("prefill")
                times.decode_p50 = timings.get("decode_p50")
                times.decode_p99 = timings.get("decode_p99")
                self._view.detail(f"stage {index} stopped")
                self._dispatch(machine.StageHasStopped(index))

    def _stage_ready(self, message: StageReady) -> None:
        times = self.result.times.stages[message.stage_index]
        times.device = message.device
        times.load = message.timings.get("load")
        times.compile = message.timings.get("compile")
        times.ready = message.timings.get("ready")
        first, end = times.layers
        self._view.line(
            f"stage {message.stage_index}  blocks {first}-{end - 1}  {message.device}  "
            f"load {times.load or 0:.1f} s  compile {times.compile or 0:.1f} s"
        )
        self._dispatch(machine.StageIsReady(message.stage_index))
        self._show_waiting()

    def _show_waiting(self) -> None:
        if self._state.phase is not machine.Phase.WAITING_READY:
            return
        by_doing: dict[str, list[str]] = {}
        for index in sorted(self._state.stages_awaited):
            by_doing.setdefault(self._progress.get(index, "preparing"), []).append(str(index))
        stages = [f"stage {', '.join(indices)} {doing}" for doing, indices in by_doing.items()]
        self._view.waiting("waiting for " + "; ".join(stages or self._state.awaited))

    def _name_of(self, node_id: str) -> str:
        for stage in self._state.plan.stages:
            if stage.node_id == node_id:
                return f"stage {stage.stage_index}"
        return f"node {node_id[:8]}"

    def _admit(self, node_id: str) -> Refused | None:
        planned = any(stage.node_id == node_id for stage in self._state.plan.stages)
        return None if planned else Refused("not_planned", "this node is not in the run's plan")

    # ---- teardown

    async def _tell(self, index: int, message: ProvisionStage | StopRun) -> None:
        node_id = self._state.plan.stages[index].node_id
        await self._mesh.send(node_id, CONTROL, encode_message(message), deadline_s=_SEND_S)

    async def _stop_stage(self, index: int, reason: str) -> None:
        if self._children[index].exited.done():
            self._dispatch(machine.StageHasStopped(index))
            return
        try:
            await self._tell(index, StopRun(run_id=self._state.plan.run_id, reason=reason[:500]))
        except PpError as error:
            self._view.detail(f"StopRun did not reach stage {index}: {error}")

    async def _close_token_ends(self, reason: str) -> None:
        if self._ends is not None:
            await self._ends.close(reason)
        self._dispatch(machine.TokenEndsClosed())

    async def _close_mesh(self) -> None:
        await self._mesh.close("the run is over", deadline_s=_CLOSE_S)

    async def _tear_down_processes(self) -> None:
        """Nodes that stopped end by themselves; what has not after the deadline is killed. Then the book is emptied."""
        self._deadline.disarm()
        for child in self._children:
            child.let_go()
        running = [child.exited for child in self._children if not child.exited.done() and child.pid is not None]
        if running and self._signals_seen < 2:
            await asyncio.wait(running, timeout=self._options.deadlines.kill)
        for task in list(self._tasks):
            task.cancel()
        try:
            await self._book.end_all()
        except LeftBehind as error:
            if self.result.error is None:
                self.result.error = error
            self._view.line(f"left behind: {error}")

    def _collect(self) -> None:
        if self.result.error is None:
            self.result.error = self._state.error
        self.result.tokens = list(self._state.tokens)
        self.result.finish_reason = self._state.finish_reason
        self.result.text = self._text.text


def stage_fault_error(message: StageFault) -> PpError:
    """The error a StageFault stands for, of the class its code names, with the stage in it."""
    kind = error_class(message.code) or StageFaulted
    reason = message.reason
    if f"stage {message.stage_index}" not in reason:
        reason = f"stage {message.stage_index}: {reason}"
    return kind(reason, stage=message.stage_index, log_tail=message.log_tail)
