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
from enum import StrEnum

from ppsmoke.messages import EdgeKind, Feedback, ProvisionStage
from ppsmoke.roles import Role, role_of


class Phase(StrEnum):
    UNPROVISIONED = "Unprovisioned"
    PREPARING = "Preparing"
    READY = "Ready"
    EXECUTING = "Executing"
    FAULTED = "Faulted"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Handle:
    """A loaded input object, without its bytes. `done`: it only says that the request is over.

    `sequence` is the step the object starts; token s on a Feedback edge starts step s + 1.
    """

    edge_id: int
    request_id: str
    sequence: int
    part: int
    last_part: bool
    done: bool = False

    def describe(self) -> str:
        return f"sequence {self.sequence} part {self.part} of request {self.request_id[:8]}"


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


@dataclass(frozen=True, slots=True)
class Place:
    """The next object a stage will execute. `over`: its request ended, nothing more of it is due."""

    request_id: str | None = None
    sequence: int = 0
    part: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class StageState:
    """`expected_run_id` is the run the node was started for: a fault before provisioning is reported under it."""

    stage_index: int
    stage_count: int
    node_id: str
    orchestrator_id: str
    expected_run_id: str
    phase: Phase = Phase.UNPROVISIONED
    provision: ProvisionStage | None = None
    waiting_for: frozenset[int | str] = frozenset()
    loaded: tuple[Handle, ...] = ()
    executing: Handle | None = None
    next: Place = Place()
    fault: str | None = None
    ended_runs: frozenset[str] = frozenset()
    ended_requests: frozenset[str] = frozenset()

    @property
    def role(self) -> Role:
        return role_of(self.stage_index, self.stage_count)

    @property
    def run_id(self) -> str:
        return self.provision.run_id if self.provision else self.expected_run_id


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


def refusal_of_provision(state: StageState, sender: str, message: ProvisionStage) -> str | None:
    """Why a ProvisionStage is not acted upon, or None."""
    if sender != state.orchestrator_id:
        return "provisioning is the orchestrator's alone"
    if message.run_id in state.ended_runs:
        return f"run {message.run_id[:8]} was stopped here before"
    if state.phase not in (Phase.UNPROVISIONED, Phase.STOPPED):
        return f"run {state.run_id[:8]} is active here ({state.phase.value}) and was not stopped"
    if message.run_id != state.expected_run_id:
        return f"run {message.run_id[:8]} is not the run this node was started for"
    if (message.stage_index, message.stage_count) != (state.stage_index, state.stage_count):
        return (
            f"this node is stage {state.stage_index} of {state.stage_count}, "
            f"not {message.stage_index} of {message.stage_count}"
        )
    if not 0 <= message.layer_start < message.layer_end_exclusive <= message.model.num_layers:
        return f"blocks {message.layer_start}..{message.layer_end_exclusive} are no range of {message.model.num_layers}"
    ends = (message.layer_start == 0, message.layer_end_exclusive == message.model.num_layers)
    if ends != (state.role is Role.FIRST, state.role is Role.LAST):
        return (
            f"blocks {message.layer_start}..{message.layer_end_exclusive} of {message.model.num_layers} "
            f"are not those of a {state.role.value} stage"
        )
    return _refusal_of_edges(state, message)


def _refusal_of_edges(state: StageState, message: ProvisionStage) -> str | None:
    role = state.role
    direct = message.generation.feedback is Feedback.DIRECT
    inbound = sorted(edge.kind.value for edge in message.inbound)
    outbound = sorted(edge.kind.value for edge in message.outbound)
    wanted_in = {
        Role.FIRST: [EdgeKind.FEEDBACK, EdgeKind.TOKEN_IN] if direct else [EdgeKind.TOKEN_IN],
        Role.MIDDLE: [EdgeKind.ACTIVATION],
        Role.LAST: [EdgeKind.ACTIVATION],
    }[role]
    wanted_out = {
        Role.FIRST: [EdgeKind.ACTIVATION],
        Role.MIDDLE: [EdgeKind.ACTIVATION],
        Role.LAST: [EdgeKind.FEEDBACK, EdgeKind.TOKEN_OUT] if direct else [EdgeKind.TOKEN_OUT],
    }[role]
    if inbound != sorted(kind.value for kind in wanted_in) or outbound != sorted(kind.value for kind in wanted_out):
        return f"a {role.value} stage cannot be wired with {inbound} in and {outbound} out"
    if len(set(message.edge_ids)) != len(message.edge_ids):
        return "two edges of this stage have one id"
    return None


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
    if state.phase is Phase.EXECUTING or _must_wait(state, handle):
        return replace(state, loaded=(*state.loaded, handle)), ()
    after, actions = _take(state, handle)
    return _take_waiting(after, actions) if handle.done else (after, actions)


def _take_waiting(state: StageState, actions: tuple[Action, ...]) -> Step:
    """What was loaded before its turn and may be taken now."""
    while state.phase is Phase.READY and state.loaded:
        queued = next((handle for handle in state.loaded if not _must_wait(state, handle)), None)
        if queued is None:
            break
        rest = tuple(handle for handle in state.loaded if handle is not queued)
        state, more = _take(replace(state, loaded=rest), queued)
        actions += more
    return state, actions


def _must_wait(state: StageState, handle: Handle) -> bool:
    """Whether it is the next request's prompt while the end of the former, which is on its way, has not come."""
    former = state.next
    if handle.sequence > 0 or former.request_id in (None, handle.request_id) or former.over or former.part:
        return False
    provision = state.provision
    assert provision is not None
    fed_back = any(edge.edge_id != handle.edge_id and edge.kind is EdgeKind.FEEDBACK for edge in provision.inbound)
    is_next = handle.part == 0 and handle.request_id not in state.ended_requests
    return fed_back and (is_next or any(other.request_id == handle.request_id for other in state.loaded))


def _take(state: StageState, handle: Handle) -> Step:
    """Start the step of an object, or end the request it says is over; the stage is idle."""
    reason = _out_of_order(state, handle)
    if reason is not None:
        return _failed(state, Failed(reason, code="out_of_order"))
    if handle.done:
        return replace(state, next=replace(state.next, over=True)), (ReleaseInput(handle),)
    former = state.next.request_id
    if handle.request_id != former and former is not None:
        known = replace(state, ended_requests=state.ended_requests | {former})
        return _moved(known, Phase.EXECUTING, handle, state.next), (ForgetRequest(former), ExecuteStep(handle))
    return _moved(state, Phase.EXECUTING, handle, state.next), (ExecuteStep(handle),)


def _out_of_order(state: StageState, handle: Handle) -> str | None:
    assert state.provision is not None
    edges = {edge.edge_id: edge.kind for edge in state.provision.inbound}
    kind = edges.get(handle.edge_id)
    if kind is None:
        return f"{handle.describe()} came on edge {handle.edge_id}, which is no inbound edge of this stage"
    direct = state.provision.generation.feedback is Feedback.DIRECT
    if kind is EdgeKind.TOKEN_IN and direct and handle.sequence > 0:
        return f"{handle.describe()} came from the orchestrator although the last stage feeds tokens back"
    if kind is EdgeKind.FEEDBACK and handle.sequence == 0:
        return f"{handle.describe()} came from the last stage; a prompt comes from the orchestrator"
    if handle.sequence > 0 and not handle.last_part:
        return f"{handle.describe()} is a part of a decode step; only a prompt travels in parts"
    following = state.next
    if handle.request_id == following.request_id and following.over:
        return f"{handle.describe()} came after the end of its request"
    if handle.request_id in state.ended_requests:
        return f"{handle.describe()} came after another request had begun"
    if handle.request_id != following.request_id and (handle.sequence, handle.part) == (0, 0) and not handle.done:
        if following.part == 0:
            return None
        return f"{handle.describe()} came in the middle of the prompt of request {str(following.request_id)[:8]}"
    if (handle.request_id, handle.sequence, handle.part) != (following.request_id, following.sequence, following.part):
        return f"{handle.describe()} is out of order, expected sequence {following.sequence} part {following.part}"
    return None


def _step_done(state: StageState, handle: Handle) -> Step:
    if state.phase is not Phase.EXECUTING or state.executing != handle:
        return state, ()
    following = Place(handle.request_id, handle.sequence, handle.part + 1)
    if handle.last_part:
        following = Place(handle.request_id, handle.sequence + 1, 0)
    after = _moved(state, Phase.READY, None, following)
    return _take_waiting(after, (ReleaseInput(handle),))


def _moved(state: StageState, phase: Phase, executing: Handle | None, following: Place) -> StageState:
    """`replace` for the two moves of every step, at a third of its cost."""
    return StageState(
        state.stage_index,
        state.stage_count,
        state.node_id,
        state.orchestrator_id,
        state.expected_run_id,
        phase,
        state.provision,
        state.waiting_for,
        state.loaded,
        executing,
        following,
        state.fault,
        state.ended_runs,
        state.ended_requests,
    )


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
