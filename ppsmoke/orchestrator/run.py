"""One run: the driver around the orchestrator's machine. It watches for every kind of death and deadline, and ends what
it began, whatever happened. Where its nodes come from is the business of their source.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from ppsmoke.errors import LeftBehind, PpError, RunFailed
from ppsmoke.guarded_tasks import GuardedTasks
from ppsmoke.membership import Member, table_json
from ppsmoke.messages import CONTROL_CHANNEL, StopRun
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.answering import Answering
from ppsmoke.orchestrator.children import ChildNode
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.conversation import Conversation
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.edge_news import EdgeNews
from ppsmoke.orchestrator.faults import Faults
from ppsmoke.orchestrator.happenings import Happenings
from ppsmoke.orchestrator.hold import Dialog
from ppsmoke.orchestrator.interruptions import Interruptions
from ppsmoke.orchestrator.joining import Joining
from ppsmoke.orchestrator.local_nodes import LocalNodes, MakeChild
from ppsmoke.orchestrator.member_changes import MemberChanges
from ppsmoke.orchestrator.member_news import MemberNews
from ppsmoke.orchestrator.node_source import NodeSource
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.pause import Pause
from ppsmoke.orchestrator.phase_bounds import phase_bound
from ppsmoke.orchestrator.provisioning import Provisioning
from ppsmoke.orchestrator.redeploy import Redeployments
from ppsmoke.orchestrator.result import RunResult, StageTimes
from ppsmoke.orchestrator.stage_axis import StageAxis
from ppsmoke.orchestrator.stage_messages import StageMessages
from ppsmoke.orchestrator.token_ends import TokenEnds
from ppsmoke.orchestrator.waiting_news import WaitingNews
from ppsmoke.paths.quality import edges_json
from ppsmoke.paths.watch import PathKind
from ppsmoke.process_limits import refused_by_system
from ppsmoke.request import fit_to_context
from ppsmoke.run_events import PromptInjected, StageDoing, StageState
from ppsmoke.transport import MeshEvents

_TABLE_S = 0.5
_LET_GO_S = 2.0


class ChainRun(MeshEvents):
    """`execute` runs once and always returns a result; its `error` says what went wrong, if anything did."""

    def __init__(self, options: RunOptions, view: View, nodes: NodeSource, hold: Dialog | None = None) -> None:
        """`hold`: after its answer the run goes on with the prompts that come from there."""
        self._options = options
        self._view = view
        self._nodes = nodes
        self._happenings = Happenings(options, view, remote=nodes.network.remote)
        self._edge_news = EdgeNews(view, show=options.show_members or not nodes.network.loopback_only)
        self._member_news = MemberNews(view, options.num_stages, show=options.show_members)
        self._last_table: asyncio.Task[None] | None = None
        self._probing: list[asyncio.Task[None]] = []
        self._ended_at: float | None = None
        self._provisioned_at = 0.0
        # Set when the run begins.
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._cluster: Cluster
        self._joining: Joining
        self._faults: Faults
        self._member_changes: MemberChanges
        self._tasks: GuardedTasks
        self._deadline: PhaseDeadline
        self._axis: StageAxis
        self._redeployments: Redeployments
        self._provisioning: Provisioning
        self._answering: Answering
        self._state: machine.RunState
        self._stage_messages: StageMessages
        self.result = RunResult(
            run_id=options.run_id,
            model_id=options.model.model_id,
            num_stages=options.num_stages,
            prompt_tokens=len(options.prompt_tokens) if options.prompt_given else 0,
        )
        self._conversation = Conversation(options, view, self.result, hold)
        self._waiting = WaitingNews(
            view,
            remote=nodes.network.remote,
            state=lambda: self._state,
            not_joined=lambda: self._cluster.not_joined(),
        )
        self._interruptions = Interruptions(
            view,
            nodes,
            self._conversation,
            self.result,
            state=lambda: self._state,
            dispatch=self._dispatch,
            finish=self._finish,
        )

    async def execute(self) -> RunResult:
        """Run to the end and verify that nothing is left. Raises PlanInvalid before anything was created."""
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        started = time.monotonic()
        self._make_parts()
        plan = self._cluster.plan
        self._state = machine.RunState(plan=plan, request_id=self._conversation.request.id)
        if self._conversation.held:
            generation, context = self._options.generation, self._options.context
            most = fit_to_context(len(self._options.prompt_tokens), generation.max_tokens, context)
            self._state = replace(self._state, hold=True, max_tokens=most, unprompted=not self._options.prompt_given)
        self.result.times.stages = [
            StageTimes(s.stage_index, (s.layer_start, s.layer_end_exclusive)) for s in plan.stages
        ]
        self._interruptions.listen(self._loop)
        self._loop.set_exception_handler(self._callback_failed)
        if not self._nodes.network.remote:
            self._begin_budget()
        self._happenings.began(plan)
        self._stage_messages = self._make_stage_messages(Pause(self._cluster, self._deadline, self._view))
        self._tasks.spawn(self._boot())
        try:
            await self._finished
        finally:
            ended = self._ended_at or time.monotonic()
            await self._end_cluster()
        self.result.times.teardown = time.monotonic() - ended
        self.result.times.total = time.monotonic() - started
        self._collect()
        self._happenings.ended(self.result.exit_status)
        return self.result

    def _make_parts(self) -> None:
        self._cluster = Cluster(
            self._options,
            self._nodes,
            events=self,
            member_changed=self._member_changed,
            path_changed=self._path_changed,
        )
        self._axis = StageAxis(self._view, self._options.run_id, self._options.num_stages, self._cluster.tell)
        self._joining = Joining(self._cluster, self._nodes, self._view, self._options.deadlines.join)
        self._redeployments = Redeployments(
            self._options,
            self._view,
            self._cluster,
            self._nodes,
            ready=lambda: self._answering.restart_when_idle(),
            told=lambda: self._conversation.ask_again(),
        )
        self._faults = Faults(
            self._options,
            self._view,
            self._cluster,
            self._joining,
            self._waiting,
            state=lambda: self._state,
            dispatch=self._dispatch,
        )
        self._member_changes = MemberChanges(
            self._options,
            self._cluster,
            self._happenings,
            self._member_news,
            self._faults,
            state=lambda: self._state,
            dispatch=self._dispatch,
            relayed=self._edge_news.relayed,
        )
        self._tasks = GuardedTasks(self._loop, self._work_failed)
        self._deadline = PhaseDeadline(self._faults.deadline_passed)
        self._provisioning = Provisioning(
            self._options,
            self._view,
            self._cluster,
            self._edge_news,
            dispatch=self._dispatch,
            spawn=self._tasks.spawn,
            fault=self._faults.take,
        )
        self._answering = Answering(
            conversation=self._conversation,
            deadlines=self._options.deadlines,
            deadline=self._deadline,
            provisioning=self._provisioning,
            redeployments=self._redeployments,
            faults=self._faults,
            state=lambda: self._state,
            dispatch=self._dispatch,
            spawn=self._tasks.spawn,
        )

    def _make_stage_messages(self, pause: Pause) -> StageMessages:
        return StageMessages(
            view=self._view,
            cluster=self._cluster,
            times=self.result.times.stages,
            happenings=self._happenings,
            waiting=self._waiting,
            axis=self._axis,
            edge_news=self._edge_news,
            pause=pause,
            redeployments=self._redeployments,
            faults=self._faults,
            dispatch=self._dispatch,
        )

    def output_gone(self) -> None:
        """Nobody wants the run any more: it ends in order, at once. From inside what it tells its view, too."""
        self._loop.call_soon_threadsafe(self._dispatch, machine.OutputClosed())

    def _begin_budget(self) -> None:
        budget = self._options.deadlines.budget
        if budget is not None:
            self._loop.call_later(budget, self._faults.budget_spent)

    async def _boot(self) -> None:
        began = time.monotonic()
        await self._cluster.spawn(self)
        self.result.times.spawn = time.monotonic() - began
        joining = time.monotonic()
        self._happenings.joining()
        if not await self._joining.complete():
            self._faults.deadline_passed(self._options.deadlines.join, "join", "--join-timeout")
            return
        self.result.times.join = time.monotonic() - joining
        self._state = replace(self._state, plan=self._cluster.plan)
        self._dispatch(machine.ClusterFormed())
        self._probing = [self._tasks.spawn(self._axis.probe(stage)) for stage in range(self._options.num_stages)]

    async def _form_again(self) -> None:
        await self._redeployments.wait_joined()
        self._dispatch(machine.ClusterFormed())

    # ---- the machine's driver

    def _dispatch(self, event: machine.Event) -> None:
        before, failed = self._state.phase, self._state.error is not None
        self._state, actions = machine.step(self._state, event)
        if self._state.error is not None and not failed:
            self._happenings.failed(self._state.error)
        if self._state.phase is not before:
            self._phase_changed(before)
        for action in actions:
            self._perform(action)

    def _phase_changed(self, before: machine.Phase) -> None:
        phase = self._state.phase
        self._view.detail(f"{before.value} -> {phase.value}")
        self._happenings.entered(phase)
        bound = phase_bound(phase, self._options.deadlines)
        if bound is None:
            self._deadline.disarm()
        elif phase is not machine.Phase.WAITING_READY:  # which goes on with that of the phase before
            self._deadline.arm(bound.seconds, bound.what, bound.option)
        match phase:
            case machine.Phase.PROVISIONING:
                self._provisioned_at = time.monotonic()
            case machine.Phase.RUNNING:
                self.result.times.prompt_at = time.monotonic()
                if before is machine.Phase.WAITING_READY:
                    self._is_ready()
                self._view.waiting("waiting for the first token")
            case machine.Phase.IDLE:
                if before is machine.Phase.WAITING_READY:
                    self._view.settle()
                    self._redeployments.done()
            case machine.Phase.TEARING_DOWN:
                self._ended_at = time.monotonic()
                self._view.settle()
                for probing in self._probing:
                    probing.cancel()
                self._last_table = self._tasks.spawn(self._show_members("at the end"))

    def _is_ready(self) -> None:
        """The chain is, for the first time."""
        self.result.times.ready = time.monotonic() - self._provisioned_at
        self._edge_news.show()
        self._tasks.spawn(self._show_members("after boot"))
        if self._options.held_dir is not None:
            self._tasks.spawn(self._redeployments.serve())

    def _perform(self, action: machine.Action) -> None:
        match action:
            case machine.ProvisionStages():
                self._tasks.spawn(self._provision())
            case machine.InjectPrompt():
                request = self._conversation.request
                self._view.happened(PromptInjected(request.id, len(request.prompt)))
                self._stages_do(StageState.PREFILL)
                self._tasks.spawn(self._need_ends().inject_prompt(request))
            case machine.AwaitPrompt():
                self._is_ready()
                self._tasks.spawn(self._answering.take_prompt())
            case machine.InjectToken(sequence, token):
                self._tasks.spawn(self._need_ends().inject_token(self._conversation.request, sequence, token))
            case machine.EmitToken(token, finish_reason):
                if len(self._state.tokens) == 1:
                    self._stages_do(StageState.DECODING)
                self._conversation.take_token(token, finish_reason)
            case machine.FinishAnswer():
                self._conversation.handing_over = True
            case machine.StopStage(index, reason):
                self._happenings.stages_do((index,), StageState.STOPPING)
                self._tasks.spawn(self._stop_stage(index, reason))
            case machine.RestartStage(index):
                self._happenings.stages_do((index,), StageState.STOPPING)
                self._tasks.spawn(self._redeployments.restart(index))
            case machine.FormAgain():
                # At once: what the former nodes still do is no news of the plan's.
                self._redeployments.plan_again()
                self._state = replace(self._state, plan=self._cluster.plan)
                self._tasks.spawn(self._form_again())
            case machine.CloseTokenEnds(reason):
                self._tasks.spawn(self._provisioning.close(reason))
            case machine.Finish():
                self._finish()

    def _stages_do(self, state: StageState) -> None:
        self._happenings.stages_do(range(self._options.num_stages), state)

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def _work_failed(self, error: Exception) -> None:
        self._faults.take(error if isinstance(error, PpError) else _unexpected(error))

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of this program where nobody waits for a result: it must not look like a run that goes on."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            self.result.error = self.result.error or _unexpected(error)
            self._finish()

    async def _provision(self) -> None:
        ends = await self._provisioning.provision()
        if ends is None:
            return
        self._tasks.spawn(self._answering.consume(ends))
        self._dispatch(machine.Provisioned())
        self._waiting.show()

    def _need_ends(self) -> TokenEnds:
        assert self._provisioning.ends is not None
        return self._provisioning.ends

    # ---- news of the nodes and members

    def node_ended(self, stage: int, error: PpError) -> None:
        self._faults.of_stage(stage, error)
        self._dispatch(machine.StageHasStopped(stage))

    def source_failed(self, error: PpError) -> None:
        self._faults.report(error)

    def node_state(self, stage: int, doing: str, state: StageState = StageState.RENTING, *, anew: bool = False) -> None:
        self._view.happened(StageDoing(stage, state, doing, anew=anew))
        self._waiting.stage_does(stage, doing)

    def renting_began(self) -> None:
        self._begin_budget()
        budget = self._options.deadlines.budget
        if budget is not None:
            self._tasks.spawn(self._waiting.count_down(self._loop.time() + budget))

    def _member_changed(self, before: Member | None, member: Member) -> None:
        self._member_changes.take(before, member)

    def _path_changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        stage = self._cluster.planned_stage(node_id)
        if stage is not None:
            self._edge_news.changed(None, stage, before, after)

    async def _show_members(self, title: str) -> None:
        rows = await self._cluster.member_table()
        self.result.members = table_json(rows, self._options.num_stages)
        if rows:
            self._member_news.table(title, rows)

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel == CONTROL_CHANNEL:
            self._stage_messages.take(node_id, body)

    # ---- teardown

    async def _stop_stage(self, index: int, reason: str) -> None:
        if index in self._member_changes.dead or self._nodes.has_ended(index):
            self._dispatch(machine.StageHasStopped(index))
            return
        try:
            await self._cluster.tell(index, StopRun(run_id=self._cluster.plan.run_id, reason=reason[:500]))
        except PpError as error:
            self._view.detail(f"StopRun did not reach stage {index}: {error}")

    async def _end_cluster(self) -> None:
        self._deadline.disarm()
        self._redeployments.close(self._state.error)
        if self._last_table is not None:
            await asyncio.wait((self._last_table,), timeout=_TABLE_S)
        await self._tasks.end(_LET_GO_S)
        try:
            self._nodes.kill(self._member_changes.dead)
            await self._cluster.end(
                self._options.deadlines.kill if self._interruptions.seen < 2 else 0, self._state.error
            )
        except LeftBehind as error:
            self.result.left_behind = error

    def _collect(self) -> None:
        self.result.edges = edges_json(self._edge_news.edges)
        # A fault of this program stands before what its end did to the stages.
        self.result.error = self.result.error or self._state.error or self.result.left_behind
        self.result.tokens = list(self._state.tokens)
        self.result.finish_reason = self._state.finish_reason
        self.result.text = self._conversation.text
        self.result.answers = self._state.answers if self._conversation.held else None


def _unexpected(error: Exception) -> PpError:
    unknown = RunFailed(f"unexpected {type(error).__name__}: {error}", remedy="Run again with --debug.")
    failure = refused_by_system(error) or unknown
    failure.__cause__ = error
    failure.__traceback__ = error.__traceback__
    return failure


class LocalRun(ChainRun):
    """A run whose nodes are children of this process."""

    def __init__(
        self, options: RunOptions, view: View, *, hold: Dialog | None = None, make_child: MakeChild = ChildNode
    ) -> None:
        super().__init__(options, view, LocalNodes(options, view, make_child), hold)
