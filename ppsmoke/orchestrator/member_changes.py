"""What becomes of a member, and what that means for the run: a stage that is lost is a fault, and answers no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ppsmoke.errors import PeerLost
from ppsmoke.membership import Member
from ppsmoke.membership.patience import sure_to_bear_s
from ppsmoke.membership.swim import SwimConfig
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.faults import Faults
from ppsmoke.orchestrator.happenings import Happenings
from ppsmoke.orchestrator.member_news import MemberNews
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.wording import look_at_relay

_QUIET = (machine.Phase.PLANNING, machine.Phase.REDEPLOYING, machine.Phase.TEARING_DOWN, machine.Phase.DONE)
"""What becomes of members then is no surprise."""
_MORE_PATIENCE = 4


class MemberChanges:
    """`dead`: the stages that were declared dead. `state` gives the run's state, `dispatch` steps its machine,
    `relayed` says whether a stage is reached over a relay."""

    def __init__(
        self,
        options: RunOptions,
        cluster: Cluster,
        happenings: Happenings,
        news: MemberNews,
        faults: Faults,
        *,
        state: Callable[[], machine.RunState],
        dispatch: Callable[[machine.Event], None],
        relayed: Callable[[int], bool],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._happenings = happenings
        self._news = news
        self._faults = faults
        self._state = state
        self._dispatch = dispatch
        self._relayed = relayed
        self.dead: set[int] = set()

    def take(self, before: Member | None, member: Member) -> None:
        """Membership has learnt something of a member."""
        self._news.changed(before, member, expected=self._state().phase in _QUIET)
        index = member.stage_index
        if index is None:
            return
        self._happenings.member(before, member)
        if member.state in ("alive", "suspect") or self._cluster.planned_stage(member.node_id) is None:
            return
        if member.state == "dead":
            # It cannot answer a StopRun any more, so nothing waits for its answer.
            self.dead.add(index)
            self._faults.of_stage(index, self._fell_silent(index, member.reason), verdict=True)
        elif self._state().phase is not machine.Phase.REDEPLOYING:
            again = try_again(self._options.log_dir)
            self._faults.of_stage(index, PeerLost(member.reason, stage=index, remedy=again))
        self._dispatch(machine.StageHasStopped(index))

    def _fell_silent(self, stage: int, reason: str) -> PeerLost:
        network = self._cluster.nodes.network
        patience = more_patience(self._options.deadlines.silence, network.membership)
        remedy = f"{try_again(self._options.log_dir)} {patience}"
        if self._relayed(stage):
            remedy = f"{look_at_relay(network.relay_urls)} {remedy}"
        return PeerLost(f"stage {stage} fell silent: {reason}", stage=stage, remedy=remedy)


def try_again(log_dir: Path) -> str:
    """A remedy where the cause is not known."""
    return f"Run it again; if it comes back, the log in {log_dir} tells more."


def more_patience(silence_s: float, config: SwimConfig) -> str:
    """What can be done where a stage was only halted; `config` is what `silence_s` comes to."""
    sure_s = sure_to_bear_s(config)
    return (
        "If its process or machine only stood still for some seconds (stopped, asleep, overloaded), give it more time: "
        f"--silence-timeout {silence_s * _MORE_PATIENCE:g} bears {sure_s * _MORE_PATIENCE:.1f} s of that, "
        f"{silence_s:g} no more than {sure_s:.1f} s for sure."
    )
