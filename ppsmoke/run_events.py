"""What happens in a run, as records: for the display while it goes on and for the bundle after it. Pure data.

Times are seconds. A stage is its index; None stands for the orchestrator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal, get_args


class StageState(StrEnum):
    """What a stage is at, in the order in which a stage passes them."""

    RENTING = "renting"
    STARTING = "starting"
    JOINING = "joining"
    FETCHING = "fetching"
    LOADING = "loading"
    COMPILING = "compiling"
    LOADED = "loaded"  # and waits for what the others are still at
    LINKING = "linking"
    READY = "ready"
    PREFILL = "prefill"
    DECODING = "decoding"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunBegan:
    """`layers`: the half-open range of blocks of every stage. `remote`: the stages are on rented machines."""

    run_id: str
    model_id: str
    layers: tuple[tuple[int, int], ...]
    prompt_tokens: int
    max_tokens: int
    remote: bool
    budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """`deadline_s`: from now; None where the phase has none. `option` sets it."""

    phase: str
    deadline_s: float | None = None
    option: str = ""


@dataclass(frozen=True, slots=True)
class StagePlaced:
    """`host`: 'pid 4711', or the rented machine in a few words."""

    stage: int
    host: str


@dataclass(frozen=True, slots=True)
class StageDoing:
    """`done` of `total` in `unit`s, where the state can say; `detail` is a few words more. `anew`: on another machine;
    what the one before was at counts no more."""

    stage: int
    state: StageState
    detail: str = ""
    done: int | None = None
    total: int | None = None
    unit: Literal["", "bytes", "blocks", "kernels"] = ""
    deadline_s: float | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class StageIsReady:
    stage: int
    device: str
    load_s: float | None
    compile_s: float | None
    ready_s: float | None


@dataclass(frozen=True, slots=True)
class EdgeMeasured:
    """The way between two neighbours. `bytes_per_s` as a probe of `probe_bytes` saw it, None where none was sent."""

    source: int | None
    target: int | None
    path: Literal["direct", "relay"]
    round_trip_s: float | None
    bytes_per_s: float | None = None
    probe_bytes: int = 0
    warning: str = ""


@dataclass(frozen=True, slots=True)
class PathChanged:
    """The connection of two members goes another way now. `stall_s`: how long nothing passed, where that is known."""

    source: int | None
    target: int | None
    before: Literal["direct", "relay", "none"]
    after: Literal["direct", "relay", "none"]
    stall_s: float | None = None


@dataclass(frozen=True, slots=True)
class PromptInjected:
    request_id: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class TokenArrived:
    """`index` counts from 0 in its request."""

    request_id: str
    index: int
    token: int
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class StepRan:
    """One step of a stage, on the clock of the record's time: its object `arrived`, the engine `began` and was `done`,
    the reply was `back` in the node, the transport had taken the output when it was `written`."""

    stage: int
    request_id: str
    sequence: int
    part: int
    seq_len: int
    arrived: float
    began: float
    done: float
    back: float
    written: float


STEP_TIMES = ("arrived", "began", "done", "back", "written")


@dataclass(frozen=True, slots=True)
class StagePace:
    """A stage's mean over the decode steps since the last such record, while the text comes."""

    stage: int
    steps: int
    compute_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """Membership's view of a member changed. `seen_by`: whose view."""

    seen_by: int | None
    member: int | None
    state: str
    incarnation: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClockCompared:
    """A stage's clock reads `offset_s` more than the orchestrator's, give or take `within_s`; see clock_offset."""

    stage: int
    offset_s: float
    within_s: float
    round_trip_s: float


@dataclass(frozen=True, slots=True)
class RecordsDropped:
    """A stage had more to record than it may keep, or the orchestrator (None) more than goes into the run's files: so
    many steps and events are missing there."""

    stage: int | None
    steps: int
    events: int


@dataclass(frozen=True, slots=True)
class MoneySpent:
    """US dollars: what all instances cost an hour, and what the run has cost so far."""

    per_hour: float
    so_far: float


@dataclass(frozen=True, slots=True)
class NoteMade:
    """A line of news, or of detail, in words."""

    text: str
    level: Literal["detail", "news", "warning"] = "news"


@dataclass(frozen=True, slots=True)
class ErrorSeen:
    code: str
    what: str
    remedy: str
    stage: int | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The orchestrator is about to be stopped, as by Ctrl-Z."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """It goes on; meanwhile its deadlines stood still."""

    away_s: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    exit_status: int


RunEvent = (
    RunBegan
    | PhaseEntered
    | StagePlaced
    | StageDoing
    | StageIsReady
    | EdgeMeasured
    | PathChanged
    | PromptInjected
    | TokenArrived
    | StepRan
    | StagePace
    | MemberSeen
    | ClockCompared
    | RecordsDropped
    | MoneySpent
    | NoteMade
    | ErrorSeen
    | RunPaused
    | RunResumed
    | RunEnded
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Who saw an event, and when, on the orchestrator's monotonic clock; `within`: how far off that may be, seconds."""

    source: int | None
    at: float
    within: float = 0.0


def event_name(event: RunEvent) -> str:
    """'stage_is_ready' of StageIsReady: what its record is called in a file."""
    return _NAMES[type(event)]


def event_json(event: RunEvent, *, at: float, source: int | None) -> dict[str, Any]:
    """One line of events.jsonl: `at` on the run's time axis, `source` who saw it, the event's name and fields."""
    return {"at": round(at, 6), "source": source, "event": event_name(event), **_body(event)}


def step_json(step: StepRan, *, zero: float) -> dict[str, Any]:
    """One line of spans.jsonl: the step's fields, its times on the axis that begins at `zero`."""
    times = {name: round(getattr(step, name) - zero, 6) for name in STEP_TIMES}
    return {**_body(step), **times}


def _body(event: RunEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__dataclass_fields__}


def event_from_json(body: Mapping[str, Any]) -> RunEvent | None:
    """The event that a line of events.jsonl stands for; None for one that this version does not know or that lacks a
    field. Values are taken as they are, but for the lists and states that JSON flattens."""
    kind = _KINDS.get(str(body.get("event")))
    if kind is None:
        return None
    values = {field.name: body[field.name] for field in fields(kind) if field.name in body}
    try:
        if kind is StageDoing:
            values["state"] = StageState(values["state"])
        elif kind is RunBegan:
            values["layers"] = tuple((first, end) for first, end in values["layers"])
        event: RunEvent = kind(**values)
    except (KeyError, TypeError, ValueError):
        return None
    return event


def _name(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, Any] = {_name(kind): kind for kind in get_args(RunEvent)}
_NAMES: dict[type, str] = {kind: name for name, kind in _KINDS.items()}
