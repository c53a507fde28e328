"""What the run's driver tells as events, in words of the machine's state; see run_events."""

from __future__ import annotations

from collections.abc import Iterable

from ppsmoke.errors import PpError
from ppsmoke.membership import Member
from ppsmoke.messages import StageProgress
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.phase_bounds import phase_bound
from ppsmoke.orchestrator.result import StageTimes
from ppsmoke.plan import RunPlan
from ppsmoke.run_events import (
    ErrorSeen,
    MemberSeen,
    PhaseEntered,
    RunBegan,
    RunEnded,
    StageDoing,
    StageIsReady,
    StageState,
)

JOINING = "Joining"
"""A phase of the run's events only: within Planning, from the last node's start until all have joined."""


class Happenings:
    """Each is told to the view as it happens."""

    def __init__(self, options: RunOptions, view: View, *, remote: bool) -> None:
        self._options = options
        self._view = view
        self._remote = remote

    def began(self, plan: RunPlan) -> None:
        options = self._options
        self._view.happened(
            RunBegan(
                run_id=plan.run_id,
                model_id=options.model.model_id,
                layers=tuple((stage.layer_start, stage.layer_end_exclusive) for stage in plan.stages),
                prompt_tokens=len(options.prompt_tokens) if options.prompt_given else 0,
                max_tokens=options.generation.max_tokens,
                remote=self._remote,
                budget_s=options.deadlines.budget,
            )
        )
        # A machine may be replaced by another one, so that of renting there is no one deadline.
        limit = () if self._remote else (options.deadlines.boot, "--boot-timeout")
        self._view.happened(PhaseEntered(machine.Phase.PLANNING.value, *limit))

    def joining(self) -> None:
        self._view.happened(PhaseEntered(JOINING, self._options.deadlines.join, "--join-timeout"))

    def entered(self, phase: machine.Phase) -> None:
        bound = phase_bound(phase, self._options.deadlines)
        limit = (bound.seconds, bound.option) if bound is not None else ()
        self._view.happened(PhaseEntered(phase.value, *limit))

    def stages_do(self, stages: Iterable[int], state: StageState, detail: str = "") -> None:
        for stage in stages:
            self._view.happened(StageDoing(stage, state, detail))

    def progress(self, news: StageProgress) -> None:
        """What a stage says it is doing. One that names no state is news in words alone."""
        if news.state not in list(StageState):
            return
        done, total = (news.done, news.total) if news.total else (None, None)
        self._view.happened(
            StageDoing(news.stage_index, StageState(news.state), news.phase, done=done, total=total, unit=news.unit)
        )

    def stage_ready(self, times: StageTimes) -> None:
        self._view.happened(StageIsReady(times.stage, times.device, times.load, times.compile, times.ready))

    def member(self, before: Member | None, member: Member) -> None:
        """A stage's node, as the orchestrator sees it. A name that it took is no news."""
        if before is not None and (before.state, before.incarnation) == (member.state, member.incarnation):
            return
        self._view.happened(MemberSeen(None, member.stage_index, member.state, member.incarnation, member.reason))

    def failed(self, error: PpError) -> None:
        self._view.happened(ErrorSeen(error.code, error.what, error.remedy or "", error.stage, error.phase))
        if error.stage is not None:
            self.stages_do((error.stage,), StageState.FAILED, error.what)

    def ended(self, exit_status: int) -> None:
        self._view.happened(RunEnded(exit_status))
