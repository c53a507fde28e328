"""A stage that membership has lost is a fault of the run, and one that was only halted has a remedy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppsmoke.errors import PpError
from ppsmoke.membership import Member, MemberState, local_config, wan_config
from ppsmoke.orchestrator.machine import Event, Phase, StageHasStopped
from ppsmoke.orchestrator.member_changes import MemberChanges, more_patience
from ppsmoke.wording import look_at_relay

RELAY = "https://relay.test"
STAGE = Member("a" * 64, "alive", "ticket", 1)


@dataclass
class Run:
    """What a change of a member came to."""

    phase: Phase = Phase.RUNNING
    is_relayed: bool = False
    faults: list[tuple[int, PpError, bool]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    expected: list[bool] = field(default_factory=list)

    def changes(self) -> MemberChanges:
        options: Any = SimpleNamespace(log_dir=Path("/logs"), deadlines=SimpleNamespace(silence=5.0))
        cluster: Any = SimpleNamespace(
            planned_stage={STAGE.node_id: 1}.get,
            nodes=SimpleNamespace(network=SimpleNamespace(membership=local_config(5.0), relay_urls=(RELAY,))),
        )
        happenings: Any = SimpleNamespace(member=lambda before, after: None)
        news: Any = SimpleNamespace(changed=lambda before, after, expected: self.expected.append(expected))
        faults: Any = SimpleNamespace(
            of_stage=lambda stage, error, verdict=False: self.faults.append((stage, error, verdict))
        )
        return MemberChanges(
            options,
            cluster,
            happenings,
            news,
            faults,
            state=self.state,
            dispatch=self.events.append,
            relayed=lambda stage: self.is_relayed,
        )

    def state(self) -> Any:
        return SimpleNamespace(phase=self.phase)


def member(state: MemberState, **changes: Any) -> Member:
    return replace(STAGE, state=state, reason="why", **changes)


def test_a_dead_stage_is_the_verdict_and_answers_no_more() -> None:
    run = Run()
    changes = run.changes()
    changes.take(STAGE, member("dead"))
    ((stage, error, verdict),) = run.faults
    assert (stage, str(error), verdict) == (1, "stage 1 fell silent: why", True)
    assert error.remedy == (
        "Run it again; if it comes back, the log in /logs tells more. " + more_patience(5.0, local_config(5.0))
    )
    assert run.events == [StageHasStopped(1)]
    assert changes.dead == {1}
    assert run.expected == [False]


def test_behind_a_relay_it_may_be_the_relay() -> None:
    run = Run(is_relayed=True)
    run.changes().take(STAGE, member("dead"))
    ((_, error, _),) = run.faults
    assert str(error.remedy).startswith(look_at_relay((RELAY,)))


def test_a_stage_that_leaves_is_a_fault_unless_it_is_to_come_back() -> None:
    run = Run()
    changes = run.changes()
    changes.take(STAGE, member("left"))
    assert [(stage, str(error), verdict) for stage, error, verdict in run.faults] == [(1, "why", False)]
    run.phase = Phase.REDEPLOYING
    changes.take(STAGE, member("left"))
    assert len(run.faults) == 1
    assert run.events == [StageHasStopped(1), StageHasStopped(1)]
    assert changes.dead == set()
    assert run.expected == [False, True]


@pytest.mark.parametrize(
    "after",
    [
        member("alive"),
        member("suspect"),
        member("dead", node_id="b" * 64),  # another node has its place
        member("dead", stage_index=None),
    ],
)
def test_other_changes_are_news_and_no_faults(after: Member) -> None:
    run = Run()
    run.changes().take(STAGE, after)
    assert (run.faults, run.events) == ([], [])
    assert len(run.expected) == 1


def test_the_remedy_says_what_a_higher_option_bears() -> None:
    near = more_patience(5.0, local_config(5.0))
    assert near.endswith("--silence-timeout 20 bears 6.8 s of that, 5 no more than 1.7 s for sure.")
    far = more_patience(30.0, wan_config(30.0))
    assert far.endswith("--silence-timeout 120 bears 48.0 s of that, 30 no more than 12.0 s for sure.")
