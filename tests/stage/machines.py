"""Stage machines in any state, and how tests look at what they do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ppsmoke.messages import EdgeKind, Feedback, ProvisionStage
from ppsmoke.stage.machine import (
    Action,
    EdgeReady,
    EdgesStopped,
    EmitFault,
    Event,
    Failed,
    ObjectLoaded,
    ProvisionReceived,
    Refuse,
    StopReceived,
    WorkerPrepared,
    WorkerReset,
    step,
)
from ppsmoke.stage.stage_state import Handle, Phase, StageState
from tests.samples import (
    ORCHESTRATOR,
    REQUEST,
    RUN,
    node_id,
    provision,
)

DIRECT, ORCHESTRATED = Feedback.DIRECT, Feedback.ORCHESTRATOR
LIVE = [Phase.PREPARING, Phase.READY, Phase.EXECUTING]


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
