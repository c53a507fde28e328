"""The stage's control state machine, pure: `step(state, event)` gives the next state and the actions to perform.

    Unprovisioned -> Preparing -> Ready <-> Executing
    any of them -> Faulted                      on the first failure; new run work is refused
    any of them -> Stopping -> Stopped          on StopRun for the active run, which is authoritative everywhere

It decides order and refusal only and never sees payload bytes: an object is known by its place
(request, sequence, part) and by the edge it came on.

Requests follow each other. The next one begins with its first object, between two sequences of the former, and its id
was never seen before; then the former is forgotten. Where Last feeds tokens back the prompt of the next request may
overtake the end of the former, on another edge: First keeps it until that end has come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ppsmoke.messages import ProvisionStage
from ppsmoke.stage.object_order import must_wait, out_of_order
from ppsmoke.stage.provision_rules import refusal_of_provision
from ppsmoke.stage.stage_state import Handle, Phase, Place, StageState, moved

# ---- events ----


@dataclass(frozen=True, slots=True)
class ProvisionReceived:
    sender: str
    message: ProvisionStage


@dataclass(frozen=True, slots=True)
class StopReceived:
    sender: str
    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerPrepared:
    """The worker has the provisioned range loaded and its kernels have run once."""


@dataclass(frozen=True, slots=True)
class EdgeReady:
    edge_id: int


@dataclass(frozen=True, slots=True)
class ObjectLoaded:
    handle: Handle


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step's output, if it has one, was written with the input's sequence."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Failed:
    """Preparation, a step, an edge or the worker failed; `code` as in errors.py."""

    reason: str
    code: str = "stage_faulted"
    log_tail: tuple[str, ...] = ()
    remedy: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class EdgesStopped:
    pass


@dataclass(frozen=True, slots=True)
class WorkerReset:
    """The run's device objects were released (or the worker is gone)."""


Event = (
    ProvisionReceived
    | StopReceived
    | WorkerPrepared
    | EdgeReady
    | ObjectLoaded
    | StepDone
    | Failed
    | EdgesStopped
    | WorkerReset
)

# ---- actions ----


@dataclass(frozen=True, slots=True)
class PrepareWorker:
    message: ProvisionStage


@dataclass(frozen=True, slots=True)
class OpenEdges:
    message: ProvisionStage


@dataclass(frozen=True, slots=True)
class EmitReady:
    run_id: str


@dataclass(frozen=True, slots=True)
class ExecuteStep:
    handle: Handle


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Another request begins: the worker may let go of what it keeps of this one."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    handle: Handle


@dataclass(frozen=True, slots=True)
class EmitFault:
    run_id: str
    reason: str
    code: str
    log_tail: tuple[str, ...]
    remedy: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class StopEdges:
    reason: str


@dataclass(frozen=True, slots=True)
class ResetWorker:
    pass


@dataclass(frozen=True, slots=True)
class EmitStopped:
    run_id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing changed; `reason` goes to the log, and to the sender where it asked for something."""

    sender: str | None
    reason: str


Action = (
    PrepareWorker
    | OpenEdges
    | EmitReady
    | ExecuteStep
    | ForgetRequest
    | ReleaseInput
    | EmitFault
    | StopEdges
    | ResetWorker
    | EmitStopped
    | Refuse
)


_WORKER = "worker"
_EDGES = "edges"
_LIVE = frozenset({Phase.PREPARING, Phase.READY, Phase.EXECUTING})

Step = tuple[StageState, tuple[Action, ...]]


def step(state: StageState, event: Event) -> Step:
    """The next state and what to do, in order. An event that has no place in the state is refused or ignored,
    never an exception: peers and drivers may be late."""
    match event:
        case ProvisionReceived():
            return _provision(state, event)
        case StopReceived():
            return _stop(state, event)
        case WorkerPrepared():
            return _prepared(state, _WORKER)
        case EdgeReady(edge_id):
            return _prepared(state, edge_id)
        case ObjectLoaded(handle):
            return _loaded(state, handle)
        case StepDone(handle):
            return _step_done(state, handle)
        case Failed():
            return _failed(state, event)
        case EdgesStopped():
            return _ended(state, _EDGES)
        case WorkerReset():
            return _ended(state, _WORKER)


def _provision(state: StageState, event: ProvisionReceived) -> Step:
    message = event.message
    reason = refusal_of_provision(state, event.sender, message)
    if reason is not None:
        return state, (Refuse(event.sender, f"ProvisionStage refused: {reason}"),)
    prepared = replace(
        state,
        phase=Phase.PREPARING,
        provision=message,
        waiting_for=frozenset({*message.edge_ids, _WORKER}),
        loaded=(),
        executing=None,
        next=Place(),
        fault=None,
        ended_requests=frozenset(),
    )
    return prepared, (PrepareWorker(message), OpenEdges(message))


def _prepared(state: StageState, what: int | str) -> Step:
    if state.phase is not Phase.PREPARING or what not in state.waiting_for:
        return state, ()
    waiting = state.waiting_for - {what}
    if waiting:
        return replace(state, waiting_for=waiting), ()
    return replace(state, phase=Phase.READY, waiting_for=frozenset()), (EmitReady(state.run_id),)


def _loaded(state: StageState, handle: Handle) -> Step:
    if state.phase is Phase.PREPARING:
        # The barrier is the orchestrator's to keep; an object before it means that somebody's plan is another one.
        return _failed(state, Failed(f"{handle.describe()} arrived before this stage was ready"))
    if state.phase not in _LIVE:
        return state, (Refuse(None, f"{handle.describe()} dropped: this stage is {state.phase.value}"),)
    if state.phase is Phase.EXECUTING or must_wait(state, handle):
        return replace(state, loaded=(*state.loaded, handle)), ()
    after, actions = _take(state, handle)
    return _take_waiting(after, actions) if handle.done else (after, actions)


def _take_waiting(state: StageState, actions: tuple[Action, ...]) -> Step:
    """What was loaded before its turn and may be taken now."""
    while state.phase is Phase.READY and state.loaded:
        queued = next((handle for handle in state.loaded if not must_wait(state, handle)), None)
        if queued is None:
            break
        rest = tuple(handle for handle in state.loaded if handle is not queued)
        state, more = _take(replace(state, loaded=rest), queued)
        actions += more
    return state, actions


def _take(state: StageState, handle: Handle) -> Step:
    """Start the step of an object, or end the request it says is over; the stage is idle."""
    reason = out_of_order(state, handle)
    if reason is not None:
        return _failed(state, Failed(reason, code="out_of_order"))
    if handle.done:
        return replace(state, next=replace(state.next, over=True)), (ReleaseInput(handle),)
    former = state.next.request_id
    if handle.request_id != former and former is not None:
        known = replace(state, ended_requests=state.ended_requests | {former})
        return moved(known, Phase.EXECUTING, handle, state.next), (ForgetRequest(former), ExecuteStep(handle))
    return moved(state, Phase.EXECUTING, handle, state.next), (ExecuteStep(handle),)


def _step_done(state: StageState, handle: Handle) -> Step:
    if state.phase is not Phase.EXECUTING or state.executing != handle:
        return state, ()
    following = Place(handle.request_id, handle.sequence, handle.part + 1)
    if handle.last_part:
        following = Place(handle.request_id, handle.sequence + 1, 0)
    after = moved(state, Phase.READY, None, following)
    return _take_waiting(after, (ReleaseInput(handle),))


def _failed(state: StageState, event: Failed) -> Step:
    if state.phase in (Phase.FAULTED, Phase.STOPPING, Phase.STOPPED):
        return state, ()
    faulted = replace(
        state, phase=Phase.FAULTED, fault=event.reason, waiting_for=frozenset(), loaded=(), executing=None
    )
    fault = EmitFault(state.run_id, event.reason, event.code, event.log_tail, event.remedy, event.phase)
    return faulted, (fault,)


def _stop(state: StageState, event: StopReceived) -> Step:
    if event.sender != state.orchestrator_id:
        return state, (Refuse(event.sender, "StopRun refused: it is the orchestrator's alone"),)
    if event.run_id != state.run_id:
        return state, (Refuse(event.sender, f"StopRun refused: run {event.run_id[:8]} is not active here"),)
    if state.phase is Phase.STOPPED:
        return state, (EmitStopped(event.run_id),)
    if state.phase is Phase.STOPPING:
        return state, ()
    stopping = replace(state, phase=Phase.STOPPING, waiting_for=frozenset({_EDGES, _WORKER}), loaded=(), executing=None)
    return stopping, (StopEdges(event.reason), ResetWorker())


def _ended(state: StageState, what: str) -> Step:
    if state.phase is not Phase.STOPPING:
        return state, ()
    waiting = state.waiting_for - {what}
    if waiting:
        return replace(state, waiting_for=waiting), ()
    stopped = replace(state, phase=Phase.STOPPED, waiting_for=frozenset(), ended_runs=state.ended_runs | {state.run_id})
    return stopped, (EmitStopped(state.run_id),)
