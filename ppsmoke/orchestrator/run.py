"""One run: the driver around the orchestrator's machine. It watches for every kind of death and deadline, and ends what
it began, whatever happened. Where its nodes come from is the business of their source.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, LeftBehind, MalformedRequest, PeerLost, PpError, RunFailed
from ppsmoke.membership import Member, table_json
from ppsmoke.messages import (
    CONTROL_CHANNEL,
    ClockReply,
    CodeFetched,
    EdgeKind,
    EdgeReport,
    EdgeResumed,
    PathReport,
    StageFault,
    StageMessage,
    StagePaused,
    StageProgress,
    StageReady,
    StageRecords,
    StageStopped,
    StopRun,
)
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.children import ChildNode
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.conversation import Conversation
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.edge_news import EdgeNews
from ppsmoke.orchestrator.fault_delay import FaultDelay
from ppsmoke.orchestrator.happenings import Happenings
from ppsmoke.orchestrator.hold import Dialog
from ppsmoke.orchestrator.joining import Joining
from ppsmoke.orchestrator.local_nodes import LocalNodes, MakeChild
from ppsmoke.orchestrator.member_news import MemberNews
from ppsmoke.orchestrator.news import NotNews, stage_fault_error, stage_news
from ppsmoke.orchestrator.node_source import NodeSource
from ppsmoke.orchestrator.options import OutputGone, RunOptions, View
from ppsmoke.orchestrator.path_news import tell_outage, tell_resumed
from ppsmoke.orchestrator.pause import Pause
from ppsmoke.orchestrator.phase_bounds import phase_bound
from ppsmoke.orchestrator.redeploy import Redeployments
from ppsmoke.orchestrator.result import RunResult, StageTimes
from ppsmoke.orchestrator.stage_axis import StageAxis
from ppsmoke.orchestrator.token_ends import TokenEnds
from ppsmoke.orchestrator.waiting_news import WaitingNews
from ppsmoke.paths.probe import MAX_PROBE_BYTES
from ppsmoke.paths.quality import edges_json
from ppsmoke.paths.warm_up import MAX_WARM_UP_BYTES
from ppsmoke.paths.watch import PathKind
from ppsmoke.plan import provision_stage
from ppsmoke.request import fit_to_context
from ppsmoke.run_events import PromptInjected, StageDoing, StageState
from ppsmoke.signals import ending_signals, interruption
from ppsmoke.transport import MeshEvents

_TABLE_S = 0.5
_QUIET = (machine.Phase.PLANNING, machine.Phase.REDEPLOYING, machine.Phase.TEARING_DOWN, machine.Phase.DONE)
"""What becomes of members then is no surprise."""


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
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: set[int] = set()
        self._deadline = PhaseDeadline(self._deadline_passed)
        self._faults = FaultDelay(self._report_fault)
        self._signals_seen = 0
        self._ended_at: float | None = None
        self._provisioned_at = 0.0
        self._ends: TokenEnds | None = None
        # Set when the run begins.
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._cluster: Cluster
        self._joining: Joining
        self._pause: Pause
        self._axis: StageAxis
        self._redeployments: Redeployments
        self._state: machine.RunState
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

    async def execute(self) -> RunResult:
        """Run to the end and verify that nothing is left. Raises PlanInvalid before anything was created."""
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        started = time.monotonic()
        self._cluster = Cluster(
            self._options,
            self._nodes,
            events=self,
            member_changed=self._member_changed,
            path_changed=self._path_changed,
        )
        join_s = self._options.deadlines.join
        self._axis = StageAxis(self._view, self._options.run_id, self._options.num_stages, self._cluster.tell)
        self._joining = Joining(self._cluster, self._nodes, self._view, join_s)
        self._redeployments = Redeployments(
            self._options, self._view, self._cluster, self._nodes, ready=self._restart_when_idle
        )
        plan = self._cluster.plan
        self._state = machine.RunState(plan=plan, request_id=self._conversation.request.id)
        if self._conversation.held:
            generation, context = self._options.generation, self._options.context
            most = fit_to_context(len(self._options.prompt_tokens), generation.max_tokens, context)
            self._state = replace(self._state, hold=True, max_tokens=most, unprompted=not self._options.prompt_given)
        self.result.times.stages = [
            StageTimes(s.stage_index, (s.layer_start, s.layer_end_exclusive)) for s in plan.stages
        ]
        for number in ending_signals():
            self._loop.add_signal_handler(number, self._on_signal, number)
        self._loop.set_exception_handler(self._callback_failed)
        if not self._nodes.network.remote:
            self._begin_budget()
        self._happenings.began(plan)
        self._pause = Pause(self._cluster, self._deadline, self._view)
        self._spawn(self._boot())
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

    def _begin_budget(self) -> None:
        budget = self._options.deadlines.budget
        if budget is not None:
            self._loop.call_later(budget, self._budget_spent)

    async def _boot(self) -> None:
        began = time.monotonic()
        await self._cluster.spawn(self)
        self.result.times.spawn = time.monotonic() - began
        joining = time.monotonic()
        self._happenings.joining()
        if not await self._joining.complete():
            self._deadline_passed(self._options.deadlines.join, "join", "--join-timeout")
            return
        self.result.times.join = time.monotonic() - joining
        self._state = replace(self._state, plan=self._cluster.plan)
        self._dispatch(machine.ClusterFormed())
        self._probing = [self._spawn(self._axis.probe(stage)) for stage in range(self._options.num_stages)]

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
                self._last_table = self._spawn(self._show_members("at the end"))

    def _is_ready(self) -> None:
        """The chain is, for the first time."""
        self.result.times.ready = time.monotonic() - self._provisioned_at
        self._edge_news.show()
        self._spawn(self._show_members("after boot"))
        if self._options.held_dir is not None:
            self._spawn(self._redeployments.serve())

    def _perform(self, action: machine.Action) -> None:
        match action:
            case machine.ProvisionStages():
                self._spawn(self._provision())
            case machine.InjectPrompt():
                assert self._ends is not None
                request = self._conversation.request
                self._view.happened(PromptInjected(request.id, len(request.prompt)))
                self._stages_do(StageState.PREFILL)
                self._spawn(self._ends.inject_prompt(request))
            case machine.AwaitPrompt():
                self._is_ready()
                self._spawn(self._take_prompt())
            case machine.InjectToken(sequence, token):
                assert self._ends is not None
                self._spawn(self._ends.inject_token(self._conversation.request, sequence, token))
            case machine.EmitToken(token, finish_reason):
                if len(self._state.tokens) == 1:
                    self._stages_do(StageState.DECODING)
                self._conversation.take_token(token, finish_reason)
            case machine.FinishAnswer():
                self._conversation.handing_over = True
            case machine.StopStage(index, reason):
                self._happenings.stages_do((index,), StageState.STOPPING)
                self._spawn(self._stop_stage(index, reason))
            case machine.RestartStage(index):
                self._happenings.stages_do((index,), StageState.STOPPING)
                self._spawn(self._redeployments.restart(index))
            case machine.FormAgain():
                # At once: what the former nodes still do is no news of the plan's.
                self._redeployments.plan_again()
                self._state = replace(self._state, plan=self._cluster.plan)
                self._spawn(self._form_again())
            case machine.CloseTokenEnds(reason):
                self._spawn(self._close_token_ends(reason))
            case machine.Finish():
                self._finish()

    def _stages_do(self, state: StageState) -> None:
        self._happenings.stages_do(range(self._options.num_stages), state)

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`; whatever it raises is a fault of the run."""
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PpError as error:
            self._fault(error)
        except Exception as error:
            self._fault(_unexpected(error))

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of this program where nobody waits for a result: it must not look like a run that goes on."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            self.result.error = self.result.error or _unexpected(error)
            self._finish()

    # ---- from provisioning to the last token

    async def _provision(self) -> None:
        cluster, options = self._cluster, self._options
        self._ends = ends = TokenEnds(
            cluster.mesh,
            cluster.acceptor,
            cluster.plan,
            prefill_part=options.prefill_part,
            resume_s=options.deadlines.silence,
        )
        token_in = cluster.plan.edge_of_kind(EdgeKind.TOKEN_IN)
        self._ends.producer.on_resumed = lambda outage: tell_outage(self._view, token_in, outage)
        indices = [stage.stage_index for stage in cluster.plan.stages]
        sizes = {"probe_bytes": self._probe_bytes(), "warm_up_bytes": self._warm_up_bytes()}
        provisions = [provision_stage(cluster.plan, index).replace(**sizes) for index in indices]
        await asyncio.gather(*(cluster.tell(index, message) for index, message in enumerate(provisions)))
        if self._ends is not ends:
            return  # the run ended meanwhile
        self._spawn(self._open_token_in(ends))
        self._spawn(self._consume(ends))
        self._spawn(self._find_entry())
        self._dispatch(machine.Provisioned())
        self._waiting.show()

    async def _open_token_in(self, ends: TokenEnds) -> None:
        nodes = [stage.node_id for stage in self._cluster.plan.stages]
        measuring = self._edge_news.measure(self._cluster.mesh, nodes, self._probe_bytes())
        await asyncio.gather(ends.producer.open(self._options.deadlines.ready), measuring)
        ends.producer.faulted.add_done_callback(partial(self._edge_faulted, ends))
        self._dispatch(machine.ConditionMet(machine.Condition.TOKEN_PRODUCER))

    def _probe_bytes(self) -> int:
        """What one part of a prompt has between two stages; nothing where no network is between them."""
        if self._nodes.network.loopback_only:
            return 0
        model = self._cluster.plan.model
        return min(MAX_PROBE_BYTES, self._options.prefill_part * model.hidden_dim * model.dtype_width_bytes)

    def _warm_up_bytes(self) -> int:
        """What the whole prompt has between two stages, within reason; nothing where no network is between them."""
        if self._nodes.network.loopback_only:
            return 0
        model = self._cluster.plan.model
        return min(MAX_WARM_UP_BYTES, len(self._options.prompt_tokens) * model.hidden_dim * model.dtype_width_bytes)

    def _path_changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        stage = self._cluster.planned_stage(node_id)
        if stage is not None:
            self._edge_news.changed(None, stage, before, after)

    def _edge_faulted(self, ends: TokenEnds, faulted: asyncio.Future[EdgeFaulted]) -> None:
        if not faulted.cancelled() and ends is self._ends:
            self._fault(faulted.result())

    async def _find_entry(self) -> None:
        await self._cluster.wait_entry(self._options.deadlines.ready)
        self._dispatch(machine.ConditionMet(machine.Condition.ENTRY))

    async def _consume(self, ends: TokenEnds) -> None:
        try:
            await self._consume_until_closed(ends)
        except EdgeFaulted:
            if ends is self._ends:  # else we closed it ourselves
                raise

    async def _consume_until_closed(self, ends: TokenEnds) -> None:
        await ends.consumer.wait_ready(self._options.deadlines.ready)
        self._dispatch(machine.ConditionMet(machine.Condition.TOKEN_CONSUMER))
        async for obj in ends.tokens():
            self._deadline.disarm()
            self._dispatch(machine.TokenConsumed(obj.sequence, obj.tokens[0], obj.finish_reason, obj.request_id))
            try:
                await self._conversation.flush()
                if self._conversation.handing_over:
                    answered = self._state.finish_reason if self._state.phase is machine.Phase.IDLE else None
                    await self._conversation.hand_over(self._state.tokens, answered)
            except OutputGone:
                self._dispatch(machine.OutputClosed())
            if self._state.phase is machine.Phase.IDLE:
                self._spawn(self._take_prompt())
                continue
            if self._state.phase is not machine.Phase.RUNNING:
                return
            # Not before the text was taken: a slow reader is not a slow chain.
            self._deadline.arm(self._options.deadlines.token, f"token {len(self._state.tokens)}", "--token-timeout")
        if ends is self._ends:
            self._fault(EdgeFaulted("the last stage ended its TokenOut edge before the text was over"))

    async def _take_prompt(self) -> None:
        """Wait for another prompt, as long as it takes, and serve it on the same chain."""
        self._restart_when_idle()
        try:
            prompt = await self._conversation.next_prompt()
        except OutputGone:
            self._dispatch(machine.OutputClosed())
            return
        await self._redeployments.over()
        if self._state.phase is not machine.Phase.IDLE:
            return
        if prompt is None:
            self._dispatch(machine.HoldEnded("no further prompt"))
            return
        self._conversation.begin(prompt)
        self._dispatch(machine.PromptGiven(self._conversation.request.id, prompt.max_tokens))

    def _restart_when_idle(self) -> None:
        """Now, if new code is due; else this is called again when an answer was handed over."""
        idle = self._state.phase is machine.Phase.IDLE and not self._conversation.handing_over
        if idle and self._redeployments.due:
            self._dispatch(machine.CodeSent())

    # ---- faults, deadlines, signals

    def _fault(self, error: PpError, *, verdict: bool = False) -> None:
        """Report a failure to the machine when its time has come; `verdict` as FaultDelay has it."""
        self._faults.take(error, running=self._state.phase is machine.Phase.RUNNING, verdict=verdict)

    def _stage_failed(self, stage: int, error: PpError, *, verdict: bool = False) -> None:
        """A fault, unless nothing was provisioned yet and another machine may do better."""
        if not (self._state.phase is machine.Phase.PLANNING and self._joining.takes(stage, error)):
            self._fault(error, verdict=verdict)

    def _report_fault(self, error: PpError) -> None:
        if error.phase is None:
            error.phase = self._state.doing
        self._dispatch(machine.Faulted(error))

    def _deadline_passed(self, seconds: float, what: str, option: str) -> None:
        if self._state.phase is machine.Phase.TEARING_DOWN:
            for index in sorted(self._state.stages_awaited):
                fate = "its machine ends all the same" if self._nodes.network.remote else "it will be killed"
                self._view.line(f"stage {index} did not stop within {seconds:g} s; {fate}")
                self._dispatch(machine.StageHasStopped(index))
            self._dispatch(machine.TokenEndsClosed())
            return
        self._out_of_time(f"{what} took longer than {seconds:g} s", what, option)

    def _budget_spent(self) -> None:
        phase = self._state.doing
        self._out_of_time(f"the budget of {self._options.deadlines.budget:g} s is spent in {phase}", phase, "--budget")

    def _out_of_time(self, what: str, phase: str, option: str) -> None:
        planning = self._state.phase is machine.Phase.PLANNING
        missing = self._cluster.not_joined() if planning else sorted(self._state.stages_awaited)
        stage = missing[0] if missing else None
        error = DeadlineExceeded(
            f"{what}, {self._waiting.of(missing)}" if missing else what,
            stage=stage,
            phase=phase,
            remedy=f"Raise {option}, or see the logs in {self._options.log_dir}.",
            log_tail=self._nodes.log_tail(stage) if stage is not None else (),
        )
        self._dispatch(machine.Faulted(error))

    def node_ended(self, stage: int, error: PpError) -> None:
        self._stage_failed(stage, error)
        self._dispatch(machine.StageHasStopped(stage))

    def source_failed(self, error: PpError) -> None:
        self._report_fault(error)

    def node_state(self, stage: int, doing: str, state: StageState = StageState.RENTING) -> None:
        self._view.happened(StageDoing(stage, state, doing))
        self._waiting.stage_does(stage, doing)

    def renting_began(self) -> None:
        self._begin_budget()
        budget = self._options.deadlines.budget
        if budget is not None:
            self._spawn(self._waiting.count_down(self._loop.time() + budget))

    def _member_changed(self, before: Member | None, member: Member) -> None:
        self._member_news.changed(before, member, expected=self._state.phase in _QUIET)
        index = member.stage_index
        if index is not None:
            self._happenings.member(before, member)
        if member.state in ("alive", "suspect") or index is None or self._cluster.planned_stage(member.node_id) is None:
            return
        remedy = f"Its log is in {self._options.log_dir}."
        if member.state == "dead":
            # It cannot answer a StopRun any more, so nothing waits for its answer.
            self._lost.add(index)
            what = f"stage {index} fell silent: {member.reason}"
            patience = f"{remedy} If its machine was only overloaded, raise --silence-timeout."
            self._stage_failed(index, PeerLost(what, stage=index, remedy=patience), verdict=True)
        elif self._state.phase is not machine.Phase.REDEPLOYING:
            self._stage_failed(index, PeerLost(member.reason, stage=index, remedy=remedy))
        self._dispatch(machine.StageHasStopped(index))

    async def _show_members(self, title: str) -> None:
        rows = await self._cluster.member_table()
        self.result.members = table_json(rows, self._options.num_stages)
        if rows:
            self._member_news.table(title, rows)

    def _on_signal(self, number: int) -> None:
        self._signals_seen += 1
        self._view.settle()
        error = interruption(number, self._state.doing)
        if self._signals_seen > 1:
            self._nodes.interrupted(self._signals_seen, signal.Signals(number).name)
            self._finish()
            return
        self._view.line(f"{signal.Signals(number).name}: stopping {self._nodes.describe()}")
        if number == signal.SIGINT and self._state.phase is machine.Phase.IDLE and not self._conversation.handing_over:
            # The usual way to end a hold: nothing was asked for that did not come.
            self._dispatch(machine.HoldEnded("SIGINT"))
            return
        if self._state.outcome is machine.Outcome.COMPLETED and self.result.error is None:
            self.result.error = error  # too late for the run itself, not for what would come after it
        self._dispatch(machine.Faulted(error))

    # ---- news from the stages

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CONTROL_CHANNEL:
            return
        try:
            news = stage_news(self._cluster.plan, node_id, body)
        except NotNews as reason:
            self._view.detail(f"dropped from {self._cluster.name_of(node_id)}: {reason}")
            return
        except MalformedRequest as error:
            self._fault(PeerLost(f"{self._cluster.name_of(node_id)} sent no proper control message: {error}"))
            return
        try:
            self._take(news)
        except NotNews as reason:
            self._view.detail(f"dropped from stage {news.stage_index}: {reason}")

    def _take(self, news: StageMessage) -> None:
        match news:
            case ClockReply():
                self._axis.replied(news)
            case StageRecords():
                self._axis.take(news)
            case StageProgress(phase=phase):
                self._view.detail(f"stage {news.stage_index}: {phase}")
                self._happenings.progress(news)
                self._waiting.stage_does(news.stage_index, phase)
            case EdgeResumed():
                tell_resumed(self._view, self._cluster.plan, news)
            case EdgeReport() | PathReport():
                self._edge_news.heard(news)
            case StageReady():
                self._stage_ready(news)
            case StagePaused():
                self._pause.heard(news.stage_index)
            case StageFault():
                fault = stage_fault_error(news, self._nodes.log_tail(news.stage_index))
                self._stage_failed(news.stage_index, fault)
            case CodeFetched():
                self._redeployments.fetched(news)
            case StageStopped():
                self.result.times.stages[news.stage_index].stopped(news.timings)
                self._view.detail(f"stage {news.stage_index} stopped")
                self._happenings.stages_do((news.stage_index,), StageState.STOPPED)
                self._dispatch(machine.StageHasStopped(news.stage_index))

    def _stage_ready(self, news: StageReady) -> None:
        times = self.result.times.stages[news.stage_index]
        times.became_ready(news.device, news.timings)
        self._view.line(times.describe())
        self._happenings.stage_ready(times)
        self._axis.stage_ready(news.stage_index)
        self._dispatch(machine.StageIsReady(news.stage_index))
        self._waiting.show()

    # ---- teardown

    async def _stop_stage(self, index: int, reason: str) -> None:
        if index in self._lost or self._nodes.has_ended(index):
            self._dispatch(machine.StageHasStopped(index))
            return
        try:
            await self._cluster.tell(index, StopRun(run_id=self._cluster.plan.run_id, reason=reason[:500]))
        except PpError as error:
            self._view.detail(f"StopRun did not reach stage {index}: {error}")

    async def _close_token_ends(self, reason: str) -> None:
        ends, self._ends = self._ends, None
        if ends is not None:
            await ends.close(reason)
        self._dispatch(machine.TokenEndsClosed())

    async def _end_cluster(self) -> None:
        self._deadline.disarm()
        self._redeployments.close(self._state.error)
        if self._last_table is not None:
            await asyncio.wait((self._last_table,), timeout=_TABLE_S)
        for task in list(self._tasks):
            task.cancel()
        try:
            self._nodes.kill(self._lost)
            await self._cluster.end(self._options.deadlines.kill if self._signals_seen < 2 else 0, self._state.error)
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


def _unexpected(error: Exception) -> RunFailed:
    failure = RunFailed(f"unexpected {type(error).__name__}: {error}", remedy="Run again with --debug.")
    failure.__cause__ = error
    failure.__traceback__ = error.__traceback__
    return failure


class LocalRun(ChainRun):
    """A run whose nodes are children of this process."""

    def __init__(
        self, options: RunOptions, view: View, *, hold: Dialog | None = None, make_child: MakeChild = ChildNode
    ) -> None:
        super().__init__(options, view, LocalNodes(options, view, make_child), hold)
