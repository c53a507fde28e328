"""The stage machine: every state meets every event, refusals have reasons, random schedules keep the promises."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ppsmoke.messages import EdgeKind, Feedback, ProvisionStage
from ppsmoke.stage.machine import (
    Action,
    EdgeReady,
    EdgesStopped,
    EmitFault,
    EmitReady,
    EmitStopped,
    Event,
    ExecuteStep,
    Failed,
    Handle,
    ObjectLoaded,
    OpenEdges,
    Phase,
    PrepareWorker,
    ProvisionReceived,
    Refuse,
    ReleaseInput,
    ResetWorker,
    StageState,
    StepDone,
    StopEdges,
    StopReceived,
    WorkerPrepared,
    WorkerReset,
    step,
)
from tests.samples import (
    ORCHESTRATOR,
    OTHER_REQUEST,
    OTHER_RUN,
    REQUEST,
    RUN,
    STRANGER,
    node_id,
    provision,
)

DIRECT, ORCHESTRATED = Feedback.DIRECT, Feedback.ORCHESTRATOR
LIVE = [Phase.PREPARING, Phase.READY, Phase.EXECUTING]

# ---- helpers ----


def unprovisioned(index: int = 0, stages: int = 3) -> StageState:
    return StageState(
        stage_index=index,
        stage_count=stages,
        node_id=node_id(index),
        orchestrator_id=ORCHESTRATOR,
        expected_run_id=RUN,
    )


def play(state: StageState, *events: Event) -> tuple[StageState, list[Action]]:
    done: list[Action] = []
    for event in events:
        state, actions = step(state, event)
        done += actions
    return state, done


def provisioned(message: ProvisionStage) -> ProvisionReceived:
    return ProvisionReceived(ORCHESTRATOR, message)


def preparations(message: ProvisionStage) -> list[Event]:
    return [WorkerPrepared(), *(EdgeReady(edge_id) for edge_id in message.edge_ids)]


def ready(index: int = 0, feedback: Feedback = DIRECT, stages: int = 3) -> StageState:
    message = provision(index, stages, feedback)
    state, _ = play(unprovisioned(index, stages), provisioned(message), *preparations(message))
    assert state.phase is Phase.READY
    return state


def edge(index: int, kind: EdgeKind, feedback: Feedback = DIRECT) -> int:
    """The id of this stage's inbound edge of that kind in a chain of 3."""
    return next(e.edge_id for e in provision(index, 3, feedback).inbound if e.kind is kind)


TOKEN_IN, FEEDBACK = edge(0, EdgeKind.TOKEN_IN), edge(0, EdgeKind.FEEDBACK)
ACTIVATION = edge(1, EdgeKind.ACTIVATION)
STOP = StopReceived(ORCHESTRATOR, RUN, "over")


def prompt(part: int = 0, last: bool = True, on: int = TOKEN_IN, request: str = REQUEST) -> Handle:
    return Handle(on, request, 0, part, last)


def token(sequence: int, on: int = FEEDBACK, **changes: object) -> Handle:
    return replace(Handle(on, REQUEST, sequence, 0, True), **changes)  # type: ignore[arg-type]


def in_phase(phase: Phase) -> StageState:
    """Stage 0 of 3, led to `phase` by legal events."""
    message = provision(0)
    preparing = [provisioned(message)]
    running = [*preparing, *preparations(message)]
    events: dict[Phase, list[Event]] = {
        Phase.UNPROVISIONED: [],
        Phase.PREPARING: preparing,
        Phase.READY: running,
        Phase.EXECUTING: [*running, ObjectLoaded(prompt())],
        Phase.FAULTED: [*running, Failed("it broke")],
        Phase.STOPPING: [*running, STOP],
        Phase.STOPPED: [*running, STOP, EdgesStopped(), WorkerReset()],
    }
    state, _ = play(unprovisioned(), *events[phase])
    assert state.phase is phase
    return state


def refusal(state: StageState, event: Event) -> str:
    """The reason of the one Refuse, after asserting that nothing else happened."""
    after, actions = step(state, event)
    assert after == state
    (refused,) = actions
    assert isinstance(refused, Refuse)
    return refused.reason


def fault(state: StageState, *events: Event) -> EmitFault:
    """The one EmitFault at the end of these events."""
    after, actions = play(state, *events)
    assert after.phase is Phase.FAULTED
    (emitted,) = [action for action in actions if isinstance(action, EmitFault)]
    assert actions[-1] is emitted
    assert after.fault == emitted.reason
    return emitted


def names(actions: Iterable[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


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
    return provision(index).model_copy(update=changes)


def rewired(index: int, feedback: Feedback = DIRECT, **kinds: list[EdgeKind]) -> ProvisionStage:
    """A provision of stage `index` with edges of these kinds."""
    message = provision(index, 3, feedback)
    inbound = [message.inbound[0].model_copy(update={"kind": k, "edge_id": i}) for i, k in enumerate(kinds["inbound"])]
    outbound = [
        message.outbound[0].model_copy(update={"kind": k, "edge_id": 9 + i}) for i, k in enumerate(kinds["outbound"])
    ]
    return message.model_copy(update={"inbound": tuple(inbound), "outbound": tuple(outbound)})


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
            changed(outbound=(provision(0).outbound[0].model_copy(update={"edge_id": TOKEN_IN}),)),
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


# ---- order ----


def run_steps(state: StageState, *handles: Handle) -> tuple[StageState, list[Action]]:
    """Each object is loaded and its step done."""
    return play(state, *(event for handle in handles for event in (ObjectLoaded(handle), StepDone(handle))))


def executed(actions: Iterable[Action]) -> list[Handle]:
    return [action.handle for action in actions if isinstance(action, ExecuteStep)]


def released(actions: Iterable[Action]) -> list[Handle]:
    return [action.handle for action in actions if isinstance(action, ReleaseInput)]


@pytest.mark.parametrize(
    ("state", "handles"),
    [
        (ready(0), [prompt(), token(1), token(2)]),
        (ready(0), [prompt(0, last=False), prompt(1, last=False), prompt(2), token(1)]),
        (ready(0, ORCHESTRATED), [prompt(), token(1, on=TOKEN_IN), token(2, on=TOKEN_IN)]),
        (ready(1), [prompt(on=ACTIVATION), token(1, on=ACTIVATION)]),
        (ready(2), [prompt(0, last=False, on=2), prompt(1, on=2), token(1, on=2)]),
    ],
)
def test_steps_in_order_are_executed_and_released(state: StageState, handles: list[Handle]) -> None:
    after, actions = run_steps(state, *handles)
    assert after.phase is Phase.READY
    assert executed(actions) == released(actions) == handles


def test_one_step_runs_at_a_time_and_the_queued_one_follows_its_release() -> None:
    first, second, third = prompt(0, last=False), prompt(1), token(1)
    state, actions = play(ready(), *map(ObjectLoaded, (first, second, third)))
    assert executed(actions) == [first]
    state, actions = play(state, StepDone(first))
    assert actions == [ReleaseInput(first), ExecuteStep(second)]
    state, actions = play(state, StepDone(second), StepDone(third))
    assert actions == [ReleaseInput(second), ExecuteStep(third), ReleaseInput(third)]
    assert state.phase is Phase.READY


def test_a_step_done_that_is_not_the_running_one_changes_nothing() -> None:
    running = in_phase(Phase.EXECUTING)
    for other in (token(1), prompt(1), prompt(request=OTHER_REQUEST), prompt(on=FEEDBACK)):
        assert step(running, StepDone(other)) == (running, ())


AFTER_PROMPT, _ = run_steps(ready(), prompt())
IN_PARTS, _ = run_steps(ready(), prompt(0, last=False))
AFTER_PROMPT_ORCHESTRATED, _ = run_steps(ready(0, ORCHESTRATED), prompt())
MIDDLE, _ = run_steps(ready(1), prompt(on=ACTIVATION))

OUT_OF_ORDER = {
    "a decode step first": (ready(), token(1), "expected sequence 0 part 0"),
    "a later part first": (ready(), prompt(1), "expected sequence 0 part 0"),
    "the prompt twice": (AFTER_PROMPT, prompt(), "expected sequence 1 part 0"),
    "a part after the last": (AFTER_PROMPT, prompt(1), "expected sequence 1 part 0"),
    "a sequence left out": (AFTER_PROMPT, token(2), "expected sequence 1 part 0"),
    "a sequence twice": (run_steps(AFTER_PROMPT, token(1))[0], token(1), "expected sequence 2 part 0"),
    "a part left out": (IN_PARTS, prompt(2), "expected sequence 0 part 1"),
    "a part twice": (IN_PARTS, prompt(0, last=False), "expected sequence 0 part 1"),
    "a decode step before the last part": (IN_PARTS, token(1), "expected sequence 0 part 1"),
    "a decode step with a part": (AFTER_PROMPT, token(1, part=1), "expected sequence 1 part 0"),
    "a decode step in parts": (AFTER_PROMPT, token(1, last_part=False), "only a prompt travels in parts"),
    "another request's decode step": (AFTER_PROMPT, token(1, request_id=OTHER_REQUEST), "is out of order"),
    "another request's later part": (AFTER_PROMPT, prompt(1, request=OTHER_REQUEST), "is out of order"),
    "the end of another request": (
        AFTER_PROMPT,
        token(1, request_id=OTHER_REQUEST, done=True),
        "is out of order",
    ),
    "the end of a request never begun": (ready(), token(1, done=True), "is out of order"),
    "the end too late": (AFTER_PROMPT, token(2, done=True), "expected sequence 1 part 0"),
    "an unknown edge": (ready(), prompt(on=99), "edge 99, which is no inbound edge of this stage"),
    "an outbound edge": (ready(), prompt(on=1), "edge 1, which is no inbound edge of this stage"),
    "the end on an unknown edge": (AFTER_PROMPT, token(1, on=99, done=True), "edge 99"),
    "another stage's edge": (MIDDLE, token(1, on=2), "edge 2, which is no inbound edge of this stage"),
    "the orchestrator feeding although Last does": (
        AFTER_PROMPT,
        token(1, on=TOKEN_IN),
        "although the last stage feeds tokens back",
    ),
    "a prompt from the last stage": (ready(), prompt(on=FEEDBACK), "a prompt comes from the orchestrator"),
    "Last feeding although the orchestrator does": (AFTER_PROMPT_ORCHESTRATED, token(1, on=FEEDBACK), "edge 4"),
    "a sequence left out by the orchestrator": (
        AFTER_PROMPT_ORCHESTRATED,
        token(2, on=TOKEN_IN),
        "expected sequence 1 part 0",
    ),
}


@pytest.mark.parametrize(("state", "handle", "reason"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_an_object_that_is_not_the_next_one_is_a_fault(state: StageState, handle: Handle, reason: str) -> None:
    emitted = fault(state, ObjectLoaded(handle))
    assert reason in emitted.reason
    assert emitted.code == "out_of_order"


def test_a_queued_object_out_of_order_faults_after_the_running_step() -> None:
    state, actions = play(ready(), ObjectLoaded(prompt()), ObjectLoaded(token(2)))
    assert names(actions) == ["ExecuteStep"]
    state, actions = play(state, StepDone(prompt()))
    assert names(actions) == ["ReleaseInput", "EmitFault"]
    assert state.phase is Phase.FAULTED


def test_the_end_of_a_request_is_released_and_not_computed() -> None:
    end = token(1, done=True)
    state, actions = play(AFTER_PROMPT, ObjectLoaded(end))
    assert state.phase is Phase.READY
    assert actions == [ReleaseInput(end)]


def test_the_end_that_overtakes_the_news_of_its_step_waits_for_it() -> None:
    end = token(1, done=True)
    state, actions = play(ready(), ObjectLoaded(prompt()), ObjectLoaded(end))
    assert names(actions) == ["ExecuteStep"]
    state, actions = play(state, StepDone(prompt()))
    assert actions == [ReleaseInput(prompt()), ReleaseInput(end)]
    assert state.phase is Phase.READY


@pytest.mark.parametrize("late", [token(1), token(2), prompt(), token(1, done=True)])
def test_nothing_of_a_request_follows_its_end(late: Handle) -> None:
    ended, _ = play(AFTER_PROMPT, ObjectLoaded(token(1, done=True)))
    assert "after the end of its request" in fault(ended, ObjectLoaded(late)).reason


def test_a_new_request_may_follow_the_end_of_another() -> None:
    ended, _ = play(AFTER_PROMPT, ObjectLoaded(token(1, done=True)))
    new = prompt(request=OTHER_REQUEST)
    _, actions = run_steps(ended, new, token(1, request_id=OTHER_REQUEST))
    assert len(executed(actions)) == 2


# ---- random schedules ----


class Promises:
    """Watches one machine and asserts what must hold after every step."""

    def __init__(self, state: StageState) -> None:
        self.state = state
        self.prepared: set[object] = set()
        self.executed: list[Handle] = []
        self.released: list[Handle] = []
        self.ready = self.faults = self.stopped = self.stops_after_stopped = 0
        self.asked_to_stop = False
        self.ended: set[type] = set()

    def feed(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        if isinstance(event, (WorkerPrepared, EdgeReady)) and before.phase is Phase.PREPARING:
            self.prepared.add(event)
        if isinstance(event, StopReceived) and (event.sender, event.run_id) == (ORCHESTRATOR, RUN):
            self.asked_to_stop = True
            self.stops_after_stopped += before.phase is Phase.STOPPED
        if isinstance(event, (EdgesStopped, WorkerReset)) and before.phase is Phase.STOPPING:
            self.ended.add(type(event))
        for action in actions:
            self.see(action)
        if any(isinstance(action, Refuse) for action in actions):
            assert self.state == before
        self.check()

    def see(self, action: Action) -> None:
        match action:
            case EmitReady():
                self.ready += 1
                assert self.state.provision is not None
                assert self.prepared >= set(preparations(self.state.provision))
            case EmitFault():
                self.faults += 1
                assert not self.asked_to_stop
            case EmitStopped():
                self.stopped += 1
            case ExecuteStep(handle):
                assert self.ready == 1
                assert self.faults == 0
                assert not self.asked_to_stop
                # What ran before was released: at most one step is outstanding.
                assert all(handle in self.released for handle in self.executed)
                assert handle not in self.executed
                self.executed.append(handle)
            case ReleaseInput(handle):
                assert handle not in self.released
                assert handle.done or handle in self.executed
                self.released.append(handle)

    def check(self) -> None:
        assert self.ready <= 1
        assert self.faults <= 1
        assert (self.state.phase is Phase.EXECUTING) == (self.state.executing is not None)
        both_ended = self.ended == {EdgesStopped, WorkerReset}
        assert self.stopped == (1 + self.stops_after_stopped if self.asked_to_stop and both_ended else 0)
        assert (self.state.phase is Phase.STOPPED) == both_ended
        if not self.faults and not self.asked_to_stop:
            outstanding = [] if self.state.executing is None else [self.state.executing]
            assert [handle for handle in self.released if not handle.done] + outstanding == self.executed


def next_legal(state: StageState, message: ProvisionStage, rng: random.Random) -> Event:
    """Something a correct driver could say now."""
    entry = message.inbound[0].edge_id
    decode = message.inbound[-1].edge_id
    following = state.next
    match state.phase:
        case Phase.UNPROVISIONED:
            return provisioned(message)
        case Phase.PREPARING:
            return rng.choice(preparations(message))
        case Phase.READY if following.request_id is None or following.part:
            return ObjectLoaded(Handle(entry, REQUEST, 0, following.part, last_part=rng.random() < 0.6))
        case Phase.READY if following.over:
            return STOP
        case Phase.READY:
            ends = rng.random() < 0.1
            return ObjectLoaded(Handle(decode, REQUEST, following.sequence, 0, True, done=ends))
        case Phase.EXECUTING:
            assert state.executing is not None
            return StepDone(state.executing)
        case Phase.FAULTED:
            return STOP
        case _:
            return rng.choice([EdgesStopped(), WorkerReset(), STOP])


def anything(message: ProvisionStage, rng: random.Random) -> Event:
    """An event of any kind, mostly out of place."""
    handle = Handle(
        rng.randrange(6),
        rng.choice([REQUEST, OTHER_REQUEST]),
        rng.randrange(3),
        rng.randrange(2),
        rng.random() < 0.8,
        rng.random() < 0.2,
    )
    sender = rng.choice([ORCHESTRATOR, STRANGER, message.inbound[0].producer_node_id])
    return rng.choice(
        [
            ProvisionReceived(sender, rng.choice([message, message.model_copy(update={"run_id": OTHER_RUN})])),
            StopReceived(STRANGER, RUN, "mischief"),
            StopReceived(ORCHESTRATOR, OTHER_RUN, "stale"),
            rng.choice([StopReceived(sender, RUN, "maybe"), WorkerPrepared()]),
            WorkerPrepared(),
            EdgeReady(rng.randrange(6)),
            ObjectLoaded(handle),
            StepDone(handle),
            rng.choice([Failed("it broke"), EdgesStopped()]),
            EdgesStopped(),
            WorkerReset(),
        ]
    )


@pytest.mark.parametrize("disorder", [0.0, 0.05, 0.3, 0.9])
def test_random_schedules_keep_the_promises(disorder: float) -> None:
    reached: set[Phase] = set()
    for seed in range(150):
        rng = random.Random(f"{disorder} {seed}")
        stages = rng.choice([2, 3, 5])
        index = rng.randrange(stages)
        message = provision(index, stages, rng.choice(list(Feedback)))
        promises = Promises(unprovisioned(index, stages))
        for _ in range(60):
            if rng.random() < disorder:
                promises.feed(anything(message, rng))
            else:
                promises.feed(next_legal(promises.state, message, rng))
            reached.add(promises.state.phase)
    assert reached >= set(Phase) - ({Phase.FAULTED} if disorder == 0 else set()) - {Phase.UNPROVISIONED}


def test_legal_schedules_never_fault_and_leave_nothing_unreleased() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        message = some_provision(rng)
        promises = Promises(unprovisioned(message.stage_index, message.stage_count))
        while not promises.asked_to_stop and len(promises.executed) < 20:
            promises.feed(next_legal(promises.state, message, rng))
        assert promises.faults == 0
        for event in (STOP, EdgesStopped(), WorkerReset()):
            promises.feed(event)
        assert promises.stopped == 1


def some_provision(rng: random.Random) -> ProvisionStage:
    stages = rng.choice([2, 4, 8])
    return provision(rng.randrange(stages), stages, rng.choice(list(Feedback)))
