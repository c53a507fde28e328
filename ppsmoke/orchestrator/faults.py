"""What went wrong or took too long in a run, on its way to the run's machine."""

from __future__ import annotations

from collections.abc import Callable

from ppsmoke.errors import DeadlineExceeded, PpError
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.fault_delay import FaultDelay
from ppsmoke.orchestrator.joining import Joining
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.waiting_news import WaitingNews


class Faults:
    """`state` gives the run's state, `dispatch` steps its machine."""

    def __init__(
        self,
        options: RunOptions,
        view: View,
        cluster: Cluster,
        joining: Joining,
        waiting: WaitingNews,
        *,
        state: Callable[[], machine.RunState],
        dispatch: Callable[[machine.Event], None],
    ) -> None:
        self._options = options
        self._view = view
        self._cluster = cluster
        self._joining = joining
        self._waiting = waiting
        self._state = state
        self._dispatch = dispatch
        self._delay = FaultDelay(self.report)

    def take(self, error: PpError, *, verdict: bool = False) -> None:
        """Report a failure to the machine when its time has come; `verdict` as FaultDelay has it."""
        self._delay.take(error, running=self._state().phase is machine.Phase.RUNNING, verdict=verdict)

    def of_stage(self, stage: int, error: PpError, *, verdict: bool = False) -> None:
        """A fault, unless nothing was provisioned yet and another machine may do better."""
        if not (self._state().phase is machine.Phase.PLANNING and self._joining.takes(stage, error)):
            self.take(error, verdict=verdict)

    def report(self, error: PpError) -> None:
        """At once."""
        if error.phase is None:
            error.phase = self._state().doing
        self._dispatch(machine.Faulted(error))

    def deadline_passed(self, seconds: float, what: str, option: str) -> None:
        """As PhaseDeadline has it."""
        state = self._state()
        if state.phase is machine.Phase.TEARING_DOWN:
            for index in sorted(state.stages_awaited):
                remote = self._cluster.nodes.network.remote
                fate = "its machine ends all the same" if remote else "it will be killed"
                self._view.line(f"stage {index} did not stop within {seconds:g} s; {fate}")
                self._dispatch(machine.StageHasStopped(index))
            self._dispatch(machine.TokenEndsClosed())
            return
        self._out_of_time(f"{what} took longer than {seconds:g} s", what, option)

    def budget_spent(self) -> None:
        """The user's limit for the whole run has passed."""
        phase = self._state().doing
        self._out_of_time(f"the budget of {self._options.deadlines.budget:g} s is spent in {phase}", phase, "--budget")

    def _out_of_time(self, what: str, phase: str, option: str) -> None:
        planning = self._state().phase is machine.Phase.PLANNING
        missing = self._cluster.not_joined() if planning else sorted(self._state().stages_awaited)
        stage = missing[0] if missing else None
        error = DeadlineExceeded(
            f"{what}, {self._waiting.of(missing)}" if missing else what,
            stage=stage,
            phase=phase,
            remedy=f"Raise {option}, or see the logs in {self._options.log_dir}.",
            log_tail=self._cluster.nodes.log_tail(stage) if stage is not None else (),
        )
        self._dispatch(machine.Faulted(error))
