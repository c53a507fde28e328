"""How a run ended, and where it did not end well: what was waited for, for how long, and what was missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ppsmoke.figures import seconds
from ppsmoke.report.story import Story
from ppsmoke.report.timeline import PhaseSpan, StateSpan, phases
from ppsmoke.run_events import ErrorSeen, MemberSeen, RunEnded, StageDoing, StageIsReady, StageState

_DEADLINE = "deadline_exceeded"
_TEARDOWN = ("TearingDown", "Done")
_OPTION = re.compile(r"--[a-z]+(-[a-z]+)*")
_BOUND = re.compile(r"(?:longer than|within) ([0-9]+(?:\.[0-9]+)?) s\b")


@dataclass(frozen=True, slots=True)
class Ending:
    """`stage`: whose fault it is, or who was missing first. `sentence`: one sentence, what led to the end. `left`: what
    may have outlived the run, where `sentence` does not say it."""

    how: Literal["completed", "failed", "interrupted", "cut off", "still running"]
    exit_status: int | None
    sentence: str
    error: ErrorSeen | None = None
    stage: int | None = None
    phase: str | None = None
    waited_s: float | None = None
    deadline_s: float | None = None
    option: str = ""
    missing: tuple[str, ...] = ()
    left: str = ""


def ending(story: Story, states: Sequence[StateSpan]) -> Ending:
    """Of what the bundle has: a run that was killed leaves no word of its own."""
    end = _ending(story, states)
    left = story.left_behind
    if end.how == "cut off" and story.began is not None and story.began.remote:
        left = "nothing tells whether its rented machines are gone: pp-smoke-run --teardown looks, and destroys them"
    return end if left in end.sentence else replace(end, left=left)


def _ending(story: Story, states: Sequence[StateSpan]) -> Ending:
    status, error = story.exit_status, story.error
    if status is None and error is None:
        return _cut_off(story, states)
    if error is None:
        return Ending("completed", status, "the run completed")
    if error.code == "interrupted":
        return Ending("interrupted", status, error.what, error, error.stage, error.phase)
    at = next((moment.at for moment, event in story.of(ErrorSeen) if event.code == error.code), _end_of_work(story))
    if error.code == _DEADLINE:
        return _deadline(story, states, error, status, at)
    sentence = error.what
    if error.stage is not None:
        sentence += _last_seen(error.stage, states, story, at)
    return Ending("failed", status, sentence, error, error.stage, error.phase or _phase_name(story, at))


def _deadline(story: Story, states: Sequence[StateSpan], error: ErrorSeen, status: int | None, at: float) -> Ending:
    phase = _phase_at(story, at)
    missing = _missing(story, states, at, error.stage)
    name = error.phase or (phase.phase if phase is not None else "a phase")
    said, bound = _OPTION.search(error.remedy), _BOUND.search(error.what)
    option = said[0] if said is not None else ""
    limit = float(bound[1]) if bound is not None else None
    waited = limit
    if phase is not None and option == phase.option:
        waited, limit = at - phase.begin, phase.deadline_s or limit
    budget = option == "--budget"
    if budget:
        # It runs beside the phases and is none of them.
        waited, limit = at, story.began.budget_s if story.began is not None else limit
    after = f" after {seconds(limit if limit is not None else waited)}" if limit or waited else ""
    named = f" ({option})" if option else ""
    sentence = f"the budget ran out in {name}" if budget else f"the wait for {name} ended the run"
    sentence += f"{after}{named}; missing: {', '.join(missing.values())}" if missing else f"{after}{named}"
    stage = error.stage if error.stage is not None else next(iter(missing), None)
    return Ending("failed", status, sentence, error, stage, name, waited, limit, option, tuple(missing.values()))


def _missing(story: Story, states: Sequence[StateSpan], at: float, blamed: int | None) -> dict[int, str]:
    """The stages that were not ready, with what each was at and for how long. Where all were ready, the stage that had
    the object last; where no step tells that, the one that the error blames."""
    ready = {event.stage for moment, event in story.of(StageIsReady) if moment.at <= at}
    late = [stage for stage in range(story.stage_count) if stage not in ready]
    if late:
        return {stage: f"stage {stage}{_doing(stage, states, at)}" for stage in late}
    if not story.steps or story.injected_at is None:
        return {} if blamed is None else {blamed: f"stage {blamed}{_doing(blamed, states, at)}"}
    last = max(story.steps, key=lambda step: (step.sequence, step.part, step.stage))
    held = (last.stage + 1) % story.stage_count
    sequence = last.sequence + (held == 0)
    ago = seconds(max(0.0, at - last.written))
    return {held: f"step {sequence} of stage {held}, {ago} after stage {last.stage} had sent it"}


def _doing(stage: int, states: Sequence[StateSpan], at: float) -> str:
    spans = [span for span in states if span.stage == stage and span.begin <= at and span.state not in _final()]
    if not spans:
        return ", of which nothing was heard"
    span = spans[-1]
    return f", {span.doing} for {seconds(at - span.begin)}{span.remark}"


def _last_seen(stage: int, states: Sequence[StateSpan], story: Story, at: float) -> str:
    """What a stage did before it failed: the last word on it."""
    steps = [step for step in story.steps if step.stage == stage]
    if steps:
        last = steps[-1]
        return f"; its last step was {last.sequence}, {seconds(max(0.0, at - last.written))} before"
    doing = _doing(stage, states, at)
    return f"; it was{doing[1:]}" if "for" in doing else ""


def _cut_off(story: Story, states: Sequence[StateSpan]) -> Ending:
    end = story.last_at
    span = _phase_at(story, end)
    phase = span.phase if span is not None else None
    dead = [event for _, event in story.of(MemberSeen) if event.state == "dead" and event.member is not None]
    where = f", in {span.title}" if span is not None else ""
    if story.alive:
        sentence = f"the run goes on; its record reaches {seconds(end)}{where}"
        return Ending("still running", None, sentence, None, None, phase)
    sentence = f"the record stops after {seconds(end)}{where}: pp-smoke-run itself was killed, or its machine stopped"
    stage = dead[-1].member if dead else None
    failed = [event.stage for _, event in story.of(StageDoing) if event.state is StageState.FAILED]
    return Ending("cut off", None, sentence, None, stage if stage is not None else next(iter(failed), None), phase)


def _phase_at(story: Story, at: float) -> PhaseSpan | None:
    found = [phase for phase in phases(story) if phase.begin <= at and phase.phase not in _TEARDOWN]
    return found[-1] if found else None


def _phase_name(story: Story, at: float) -> str | None:
    phase = _phase_at(story, at)
    return phase.phase if phase is not None else None


def _end_of_work(story: Story) -> float:
    ended = [moment.at for moment, _ in story.of(RunEnded)]
    return ended[0] if ended else story.last_at


def _final() -> tuple[StageState, ...]:
    return (StageState.STOPPING, StageState.STOPPED, StageState.FAILED)
