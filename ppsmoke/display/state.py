"""What a run's events come to for its operator. Pure: `fold(state, event, now)`; times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ppsmoke.run_events import (
    EdgeMeasured,
    ErrorSeen,
    MemberSeen,
    MoneySpent,
    PathChanged,
    PhaseEntered,
    PromptInjected,
    RunBegan,
    RunEnded,
    RunEvent,
    RunResumed,
    StageDoing,
    StageIsReady,
    StagePace,
    StagePlaced,
    StageState,
    TokenArrived,
)

_ORDER = {state: place for place, state in enumerate(StageState)}
_BEFORE_MEMBER = (StageState.RENTING, StageState.STARTING, StageState.JOINING)


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage. `since`: when it came to its state; `done` of `total` as StageDoing has them; `path` and
    `round_trip_s`: of the way to the next stage (of the last one: to the first)."""

    index: int
    layers: tuple[int, int]
    state: StageState
    since: float
    host: str = ""
    device: str = ""
    detail: str = ""
    done: int | None = None
    total: int | None = None
    unit: Literal["", "bytes", "blocks", "kernels"] = ""
    deadline_s: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    compute_s: float | None = None
    other_s: float | None = None
    path: Literal["", "direct", "relay", "none"] = ""
    round_trip_s: float | None = None

    @property
    def prepared(self) -> bool:
        return self.state is StageState.READY or _ORDER[self.state] > _ORDER[StageState.READY]


@dataclass(frozen=True, slots=True)
class DisplayState:
    """`tokens` are those of the answer that is coming; `ended` is the exit status once there is one."""

    run: RunBegan
    began: float
    stages: tuple[StageView, ...]
    phase: str = ""
    phase_since: float = 0.0
    phase_deadline_s: float | None = None
    budget_ends: float | None = None
    money: MoneySpent | None = None
    prompt_at: float | None = None
    tokens: int = 0
    first_at: float | None = None
    last_at: float | None = None
    error: ErrorSeen | None = None
    ended: int | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """After the first one."""
        if self.first_at is None or self.last_at is None or self.last_at <= self.first_at:
            return None
        return (self.tokens - 1) / (self.last_at - self.first_at)

    @property
    def first_token_s(self) -> float | None:
        return None if self.first_at is None or self.prompt_at is None else self.first_at - self.prompt_at

    @property
    def all_prepared(self) -> bool:
        return all(stage.prepared for stage in self.stages)


def begin(run: RunBegan, now: float) -> DisplayState:
    """Nothing has been rented or started yet. The budget of a local run counts from here."""
    first = StageState.RENTING if run.remote else StageState.STARTING
    stages = tuple(StageView(index, layers, first, now) for index, layers in enumerate(run.layers))
    budget = None if run.budget_s is None or run.remote else now + run.budget_s
    return DisplayState(run, now, stages, phase_since=now, budget_ends=budget)


def fold(state: DisplayState, event: RunEvent, now: float) -> DisplayState:
    """The state after an event; what it does not show changes nothing."""
    match event:
        case PhaseEntered("Planning", deadline_s) if state.phase == "Redeploying":
            return replace(_restarting(state, now), phase="Provisioning", phase_since=now, phase_deadline_s=deadline_s)
        case PhaseEntered(phase, deadline_s):
            state = _idle(state, now) if phase == "Idle" else state
            state = _stopping(state, now) if phase in ("TearingDown", "Done") else state
            return replace(state, phase=phase, phase_since=now, phase_deadline_s=deadline_s)
        case StagePlaced(stage, host):
            return _with(state, stage, {"host": host})
        case StageDoing():
            return _doing(state, event, now)
        case StageIsReady(stage, device, load_s, compile_s):
            news = {"device": device, "load_s": load_s, "compile_s": compile_s}
            return _with(state, stage, {**news, **_in(state, stage, StageState.READY, now)})
        case EdgeMeasured(source, target, path, round_trip_s):
            news = {"path": path, "round_trip_s": round_trip_s}
            return _with(state, source, news) if _is_next(state, source, target) else state
        case PathChanged(source, target, _, after):
            news = {"path": after, "round_trip_s": None}
            return _with(state, source, news) if _is_next(state, source, target) else state
        case StagePace(stage, _, compute_s, other_s):
            return _with(state, stage, {"compute_s": compute_s, "other_s": other_s})
        case MemberSeen(None, int(stage), "alive"):
            known = _stage(state, stage)
            if known is None or known.state not in _BEFORE_MEMBER:
                return state
            return _with(state, stage, _in(state, stage, StageState.JOINING, now))
        case PromptInjected():
            return replace(state, prompt_at=now, tokens=0, first_at=None, last_at=None)
        case TokenArrived():
            first_at = now if state.first_at is None else state.first_at
            return replace(state, tokens=state.tokens + 1, first_at=first_at, last_at=now)
        case MoneySpent():
            return replace(state, money=event)
        case ErrorSeen():
            return replace(state, error=state.error or event)
        case RunResumed(away_s):
            return _later(state, away_s)
        case RunEnded(exit_status):
            return replace(state, ended=exit_status, phase_since=now, phase_deadline_s=None)
    return state


def _idle(state: DisplayState, now: float) -> DisplayState:
    """A held run's stages wait for the next prompt."""
    for stage in state.stages:
        if stage.state in (StageState.PREFILL, StageState.DECODING):
            state = _with(state, stage.index, _in(state, stage.index, StageState.READY, now))
    return state


def _restarting(state: DisplayState, now: float) -> DisplayState:
    """A held run's stages have stopped, and come with other code: what they do then is no news of the past."""
    for stage in state.stages:
        state = _with(state, stage.index, _in(state, stage.index, StageState.STARTING, now))
    return state


def _stopping(state: DisplayState, now: float) -> DisplayState:
    """Whatever a stage was at, it is at it no longer."""
    for stage in state.stages:
        if stage.state not in (StageState.STOPPED, StageState.FAILED):
            state = _with(state, stage.index, _in(state, stage.index, StageState.STOPPING, now))
    return state


def _later(state: DisplayState, away_s: float) -> DisplayState:
    """What has been waited for, and how fast tokens come, goes on as before a pause; money does not wait."""
    return replace(
        state,
        phase_since=state.phase_since + away_s,
        stages=tuple(replace(stage, since=stage.since + away_s) for stage in state.stages),
        budget_ends=state.budget_ends if state.budget_ends is None or state.run.remote else state.budget_ends + away_s,
        first_at=None if state.first_at is None else state.first_at + away_s,
        last_at=None if state.last_at is None else state.last_at + away_s,
        prompt_at=None if state.prompt_at is None else state.prompt_at + away_s,
    )


def _doing(state: DisplayState, event: StageDoing, now: float) -> DisplayState:
    known = _stage(state, event.stage)
    if known is not None and (known.state, event.state) == (StageState.STOPPED, StageState.STOPPING) and event.detail:
        return _with(state, event.stage, {"detail": event.detail})  # its machine, when the stage itself has ended
    if known is None or (not event.anew and _comes_late(known.state, event.state)):
        return state
    if state.run.remote and state.budget_ends is None and state.run.budget_s is not None:
        state = replace(state, budget_ends=now + state.run.budget_s)  # from the first create call
    news = {
        "detail": event.detail,
        "done": event.done,
        "total": event.total,
        "unit": event.unit,
        "deadline_s": event.deadline_s,
    }
    if event.anew:
        news |= {"device": "", "path": "", "round_trip_s": None}  # another machine; which, will be told
    return _with(state, event.stage, {**_in(state, event.stage, event.state, now), **news})


def _comes_late(known: StageState, news: StageState) -> bool:
    """A failure stays until there is another machine; messages that overtook others turn nothing back."""
    if known is StageState.FAILED:
        return news is not StageState.RENTING
    if news in (StageState.RENTING, StageState.STARTING, StageState.JOINING, StageState.LOADED):
        return _ORDER[known] > _ORDER[news]
    if news in (StageState.FETCHING, StageState.LOADING, StageState.COMPILING, StageState.LINKING):
        return _ORDER[known] >= _ORDER[StageState.READY]
    return known is StageState.STOPPED and news is StageState.STOPPING


def _in(state: DisplayState, index: int, doing: StageState, now: float) -> dict[str, Any]:
    """What a stage's coming to a state changes; its time counts from its coming."""
    known = _stage(state, index)
    if known is not None and known.state is doing:
        return {}
    return {"state": doing, "since": now, "detail": "", "done": None, "total": None, "unit": "", "deadline_s": None}


def _with(state: DisplayState, index: int | None, news: Mapping[str, Any]) -> DisplayState:
    if index is None or _stage(state, index) is None:
        return state
    stages = list(state.stages)
    stages[index] = replace(stages[index], **news)
    return replace(state, stages=tuple(stages))


def _stage(state: DisplayState, index: int) -> StageView | None:
    return state.stages[index] if 0 <= index < len(state.stages) else None


def _is_next(state: DisplayState, source: int | None, target: int | None) -> bool:
    return source is not None and target == (source + 1) % len(state.stages)
