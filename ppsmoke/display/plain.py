"""The same news without a terminal: seldom a line, with its time, of what is still waited for. Pure."""

from __future__ import annotations

from ppsmoke.display.frame import phase_words
from ppsmoke.display.state import DisplayState, StageView
from ppsmoke.figures import elapsed, part_of_size
from ppsmoke.run_events import StageState
from ppsmoke.wording import counted

_FIRST_S = 5.0
_AGAIN_S = 10.0
_ANYWAY_S = 60.0
_TOLD_IN_DETAIL = (StageState.RENTING, StageState.STARTING, StageState.STOPPING, StageState.STOPPED)


class PlainLines:
    """Says nothing while a phase is short, and then a line when something has changed, but at most every 10 s; once a
    minute in any case. `decoding`: also while the text comes, which then goes somewhere else."""

    def __init__(self, *, decoding: bool) -> None:
        self._decoding = decoding
        self._said = ""
        self._said_at: float | None = None

    def line(self, state: DisplayState, now: float) -> str | None:
        """What is to be said now."""
        if state.ended is not None or state.phase == "Idle" or (state.phase == "Running" and not self._decoding):
            return None
        if now - state.phase_since < _FIRST_S:
            return None
        since = None if self._said_at is None else now - self._said_at
        if since is not None and since < _AGAIN_S:
            return None
        said = _summary(state)
        if said == self._said and since is not None and since < _ANYWAY_S:
            return None
        self._said, self._said_at = said, now
        return f"{elapsed(now - state.began)}  {said}{_bounds(state, now)}"


def _summary(state: DisplayState) -> str:
    """'preparing the stages: stages 0, 1 loading 4 of 6 blocks; stage 2 ready'"""
    if state.phase == "Running" and state.tokens:
        rate = state.tokens_per_s
        came = f"{state.tokens} of {counted(state.run.max_tokens, 'token')}"
        return f"decoding: {came}" + (f", {rate:.1f} tok/s" if rate else "")
    doing: dict[str, list[str]] = {}
    for stage in state.stages:
        doing.setdefault(_does(stage), []).append(str(stage.index))
    parts = [f"stage{'s' if len(indices) > 1 else ''} {', '.join(indices)} {what}" for what, indices in doing.items()]
    return f"{phase_words(state)}: {'; '.join(parts)}"


def _does(stage: StageView) -> str:
    if stage.done is not None and stage.total and stage.total > 1:
        done = f"{stage.done} of {stage.total} {stage.unit}"
        return f"{stage.state} {part_of_size(stage.done, stage.total) if stage.unit == 'bytes' else done}"
    if stage.state in _TOLD_IN_DETAIL and stage.detail:
        return stage.detail
    return str(stage.state)


def _bounds(state: DisplayState, now: float) -> str:
    parts = []
    if state.money is not None:
        parts.append(f"{state.money.so_far:.4f} USD so far")
    if state.budget_ends is not None:
        parts.append(f"{max(0.0, state.budget_ends - now):.0f} s of the budget left")
    return f"  ({', '.join(parts)})" if parts else ""
