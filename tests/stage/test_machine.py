"""The stage machine: every state meets every event, and what is refused, stopped or faulted says why."""

from __future__ import annotations

import random

import pytest

from ppsmoke.messages import EdgeKind, Feedback, ProvisionStage
from ppsmoke.stage.machine import (
    EdgeReady,
    EdgesStopped,
    EmitFault,
    EmitReady,
    EmitStopped,
    Event,
    Failed,
    ObjectLoaded,
    OpenEdges,
    PrepareWorker,
    ProvisionReceived,
    Refuse,
    ResetWorker,
    StepDone,
    StopEdges,
    StopReceived,
    WorkerPrepared,
    WorkerReset,
    step,
)
from ppsmoke.stage.stage_state import Phase
from tests.samples import (
    ORCHESTRATOR,
    OTHER_RUN,
    RUN,
    STRANGER,
    node_id,
    provision,
)
from tests.stage.machines import (
    DIRECT,
    LIVE,
    ORCHESTRATED,
    STOP,
    TOKEN_IN,
    fault,
    in_phase,
    names,
    play,
    preparations,
    prompt,
    provisioned,
    refusal,
    token,
    unprovisioned,
)

# ---- every state x every event ----

EVENTS: dict[str, Event] = {
    "provision": provisioned(provision(0)),
    "stop": STOP,
    "worker prepared": WorkerPrepared(),
    "edge ready": EdgeReady(TOKEN_IN),
    "object": ObjectLoaded(prompt()),
    "step done": StepDone(prompt()),
    "failed": Failed("broke", "worker_died", ("log",)),
    "edges stopped": EdgesStopped(),
    "worker reset": WorkerReset(),
}
SAME = ""  # nothing changes, nothing is done
STOPS = "Stopping StopEdges ResetWorker"
FAULTS = "Faulted EmitFault"
# The new phase and the actions; "Refuse" alone changes nothing.
TABLE: dict[str, dict[str, str]] = {
    "Unprovisioned": {
        "provision": "Preparing PrepareWorker OpenEdges",
        "stop": STOPS,
        "object": "Refuse",
        "failed": FAULTS,
    },
    "Preparing": {
        "provision": "Refuse",
        "stop": STOPS,
        "worker prepared": "Preparing",
        "edge ready": "Preparing",
        "object": FAULTS,
        "failed": FAULTS,
    },
    "Ready": {"provision": "Refuse", "stop": STOPS, "object": "Executing ExecuteStep", "failed": FAULTS},
    "Executing": {
        "provision": "Refuse",
        "stop": STOPS,
        "object": "Executing",
        "step done": "Ready ReleaseInput",
        "failed": FAULTS,
    },
    "Faulted": {"provision": "Refuse", "stop": STOPS, "object": "Refuse"},
    "Stopping": {
        "provision": "Refuse",
        "object": "Refuse",
        "edges stopped": "Stopping",
        "worker reset": "Stopping",
    },
    "Stopped": {"provision": "Refuse", "stop": "Stopped EmitStopped", "object": "Refuse"},
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("phase", list(Phase))
def test_every_state_meets_every_event(phase: Phase, name: str) -> None:
    before = in_phase(phase)
    after, actions = step(before, EVENTS[name])
    expected = TABLE[phase.value].get(name, SAME)
    if expected == SAME:
        assert (after, actions) == (before, ())
    elif expected == "Refuse":
        assert after == before
        assert names(actions) == ["Refuse"]
    else:
        new_phase, *wanted = expected.split()
        assert (after.phase.value, names(actions)) == (new_phase, wanted)
        assert after != before or phase is Phase.STOPPED


# ---- provisioning and what is refused ----


def test_a_stage_is_ready_when_worker_and_all_edges_are_in_any_order() -> None:
    rng = random.Random(0)
    for index in range(3):
        message = provision(index)
        for _ in range(10):
            order = preparations(message)
            rng.shuffle(order)
            state, actions = play(unprovisioned(index), provisioned(message), *order[:-1])
            assert state.phase is Phase.PREPARING
            assert "EmitReady" not in names(actions)
            state, actions = play(state, order[-1])
            assert state.phase is Phase.READY
            assert actions == [EmitReady(RUN)]


def test_the_same_preparation_twice_counts_once() -> None:
    state, actions = play(in_phase(Phase.PREPARING), *[WorkerPrepared()] * 4, *[EdgeReady(TOKEN_IN)] * 4)
    assert (state.phase, actions) == (Phase.PREPARING, [])
    assert state.waiting_for == set(provision(0).edge_ids) - {TOKEN_IN}


def test_an_edge_that_is_not_the_stages_own_does_not_count() -> None:
    preparing = in_phase(Phase.PREPARING)
    assert play(preparing, EdgeReady(2), EdgeReady(99)) == (preparing, [])


def changed(index: int = 0, **changes: object) -> ProvisionStage:
    return provision(index).replace(**changes)


def rewired(index: int, feedback: Feedback = DIRECT, **kinds: list[EdgeKind]) -> ProvisionStage:
    """A provision of stage `index` with edges of these kinds."""
    message = provision(index, 3, feedback)
    inbound = [message.inbound[0].replace(kind=k, edge_id=i) for i, k in enumerate(kinds["inbound"])]
    outbound = [message.outbound[0].replace(kind=k, edge_id=9 + i) for i, k in enumerate(kinds["outbound"])]
    return message.replace(inbound=tuple(inbound), outbound=tuple(outbound))


IN, OUT, ACT, BACK = EdgeKind.TOKEN_IN, EdgeKind.TOKEN_OUT, EdgeKind.ACTIVATION, EdgeKind.FEEDBACK


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (changed(run_id=OTHER_RUN), "not the run this node was started for"),
        (changed(stage_index=1), "this node is stage 0 of 3, not 1 of 3"),
        (changed(stage_count=4), "this node is stage 0 of 3, not 0 of 4"),
        (changed(layer_end_exclusive=0), "blocks 0..0 are no range of 8"),
        (changed(layer_start=5, layer_end_exclusive=3), "blocks 5..3 are no range of 8"),
        (changed(layer_end_exclusive=9), "blocks 0..9 are no range of 8"),
        (changed(layer_start=1), "blocks 1..3 of 8 are not those of a First stage"),
        (changed(layer_end_exclusive=8), "blocks 0..8 of 8 are not those of a First stage"),
        (changed(inbound=()), "a First stage cannot be wired"),
        (changed(outbound=()), "a First stage cannot be wired"),
        (changed(inbound=provision(0).inbound[:1]), "a First stage cannot be wired"),
        (changed(generation=provision(0, 3, ORCHESTRATED).generation), "a First stage cannot be wired"),
        (rewired(0, inbound=[IN, ACT], outbound=[ACT]), "a First stage cannot be wired"),
        (rewired(0, inbound=[IN, BACK, BACK], outbound=[ACT]), "a First stage cannot be wired"),
        (rewired(0, inbound=[IN, BACK], outbound=[ACT, ACT]), "a First stage cannot be wired"),
        (rewired(0, ORCHESTRATED, inbound=[IN, BACK], outbound=[ACT]), "a First stage cannot be wired"),
        (
            changed(outbound=(provision(0).outbound[0].replace(edge_id=TOKEN_IN),)),
            "two edges of this stage have one id",
        ),
    ],
)
def test_a_provision_that_is_not_this_stages_is_refused_with_its_reason(message: ProvisionStage, reason: str) -> None:
    said = refusal(unprovisioned(), provisioned(message))
    assert said.startswith("ProvisionStage refused: ")
    assert reason in said


@pytest.mark.parametrize(
    ("index", "message", "reason"),
    [
        (1, rewired(1, inbound=[ACT, ACT], outbound=[ACT]), "a Middle stage cannot be wired"),
        (1, rewired(1, inbound=[IN], outbound=[ACT]), "a Middle stage cannot be wired"),
        (1, rewired(1, inbound=[ACT], outbound=[OUT]), "a Middle stage cannot be wired"),
        (1, changed(1, layer_start=0), "are not those of a Middle stage"),
        (1, changed(1, layer_end_exclusive=8), "are not those of a Middle stage"),
        (2, rewired(2, inbound=[ACT], outbound=[OUT]), "a Last stage cannot be wired"),
        (2, rewired(2, inbound=[ACT], outbound=[ACT, BACK]), "a Last stage cannot be wired"),
        (2, rewired(2, ORCHESTRATED, inbound=[ACT], outbound=[OUT, BACK]), "a Last stage cannot be wired"),
        (2, changed(2, layer_end_exclusive=7), "are not those of a Last stage"),
    ],
)
def test_each_role_is_wired_in_one_way_only(index: int, message: ProvisionStage, reason: str) -> None:
    assert reason in refusal(unprovisioned(index), provisioned(message))


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("stages", [2, 3, 5, 8])
def test_every_provision_of_a_plan_is_accepted(stages: int, feedback: Feedback) -> None:
    for index in range(stages):
        message = provision(index, stages, feedback)
        state, actions = step(unprovisioned(index, stages), provisioned(message))
        assert state.phase is Phase.PREPARING
        assert actions == (PrepareWorker(message), OpenEdges(message))


@pytest.mark.parametrize("phase", list(Phase))
def test_only_the_orchestrator_may_provision(phase: Phase) -> None:
    for sender in (STRANGER, node_id(0), node_id(1), ""):
        event = ProvisionReceived(sender, provision(0))
        assert "the orchestrator's alone" in refusal(in_phase(phase), event)


def test_the_stranger_gets_the_answer_to_its_own_request() -> None:
    _, (refused,) = step(unprovisioned(), ProvisionReceived(STRANGER, provision(0)))
    assert isinstance(refused, Refuse)
    assert refused.sender == STRANGER


@pytest.mark.parametrize("phase", [*LIVE, Phase.FAULTED, Phase.STOPPING])
def test_an_active_run_is_not_provisioned_twice(phase: Phase) -> None:
    reason = refusal(in_phase(phase), provisioned(provision(0)))
    assert "is active here" in reason
    assert phase.value in reason


def test_a_stopped_run_is_stale() -> None:
    assert "was stopped here before" in refusal(in_phase(Phase.STOPPED), provisioned(provision(0)))


# ---- stopping ----


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.STOPPING, Phase.STOPPED)])
def test_stop_takes_effect_at_once_in_every_state(phase: Phase) -> None:
    stopping, actions = step(in_phase(phase), STOP)
    assert stopping.phase is Phase.STOPPING
    assert (stopping.executing, stopping.loaded) == (None, ())
    assert actions == (StopEdges("over"), ResetWorker())


@pytest.mark.parametrize("order", [[EdgesStopped(), WorkerReset()], [WorkerReset(), EdgesStopped()]])
def test_a_stage_has_stopped_when_edges_and_worker_have(order: list[Event]) -> None:
    stopping = in_phase(Phase.STOPPING)
    half, actions = play(stopping, order[0], order[0])
    assert (half.phase, actions) == (Phase.STOPPING, [])
    stopped, actions = play(half, order[1])
    assert stopped.phase is Phase.STOPPED
    assert actions == [EmitStopped(RUN)]


def test_stop_again_while_stopping_does_nothing_and_once_stopped_is_answered_again() -> None:
    stopping = in_phase(Phase.STOPPING)
    assert step(stopping, STOP) == (stopping, ())
    stopped = in_phase(Phase.STOPPED)
    assert step(stopped, STOP) == (stopped, (EmitStopped(RUN),))


@pytest.mark.parametrize("phase", list(Phase))
def test_nobody_else_may_stop_a_run(phase: Phase) -> None:
    assert "the orchestrator's alone" in refusal(in_phase(phase), StopReceived(STRANGER, RUN, "mischief"))


@pytest.mark.parametrize("phase", list(Phase))
def test_another_run_cannot_be_stopped_here(phase: Phase) -> None:
    assert "is not active here" in refusal(in_phase(phase), StopReceived(ORCHESTRATOR, OTHER_RUN, "over"))


LATE: list[Event] = [
    WorkerPrepared(),
    EdgeReady(TOKEN_IN),
    StepDone(prompt()),
    Failed("late"),
    EdgesStopped(),
    WorkerReset(),
]


@pytest.mark.parametrize("late", LATE, ids=lambda event: type(event).__name__)
def test_what_comes_after_the_stop_changes_nothing(late: Event) -> None:
    stopped = in_phase(Phase.STOPPED)
    assert step(stopped, late) == (stopped, ())


def test_a_step_abandoned_by_a_stop_is_not_released_when_it_ends() -> None:
    stopping, _ = play(in_phase(Phase.EXECUTING), STOP)
    assert step(stopping, StepDone(prompt())) == (stopping, ())


# ---- faults ----


@pytest.mark.parametrize("phase", [Phase.UNPROVISIONED, *LIVE])
def test_a_failure_is_reported_with_its_code_and_log(phase: Phase) -> None:
    failed = Failed("the worker died", "worker_died", ("last line",))
    emitted = fault(in_phase(phase), failed)
    assert emitted == EmitFault(RUN, "the worker died", "worker_died", ("last line",))


def test_only_the_first_fault_is_reported() -> None:
    state, actions = play(in_phase(Phase.READY), Failed("first"), Failed("second"), ObjectLoaded(prompt()))
    assert state.fault == "first"
    assert names(actions) == ["EmitFault", "Refuse"]


def test_a_fault_forgets_the_step_and_what_was_queued() -> None:
    state, _ = play(in_phase(Phase.EXECUTING), ObjectLoaded(token(1)), Failed("broke"))
    assert (state.executing, state.loaded) == (None, ())
    assert step(state, StepDone(prompt())) == (state, ())


def test_an_object_before_the_barrier_is_a_fault() -> None:
    assert "arrived before this stage was ready" in fault(in_phase(Phase.PREPARING), ObjectLoaded(prompt())).reason
