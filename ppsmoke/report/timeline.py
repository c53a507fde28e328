"""When each stage was at what, and the run in which phase: spans out of single moments. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ppsmoke.report.story import Story
from ppsmoke.run_events import MemberSeen, PhaseEntered, StageDoing, StageState

_ENDS = (StageState.STOPPED, StageState.FAILED)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    phase: str
    begin: float
    end: float
    deadline_s: float | None
    option: str

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class StateSpan:
    """`detail`: the last that was said of it."""

    stage: int
    state: StageState
    begin: float
    end: float
    detail: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def phases(story: Story) -> list[PhaseSpan]:
    """In order, each to the beginning of the next one; what the same phase entered anew is one."""
    found: list[PhaseSpan] = []
    entered = list(story.of(PhaseEntered))
    ends = [*(moment.at for moment, _ in entered[1:]), story.last_at]
    for (moment, event), end in zip(entered, ends, strict=False):
        begin = moment.at
        if found and found[-1].phase == event.phase:
            begin = found.pop().begin
        found.append(PhaseSpan(event.phase, begin, end, event.deadline_s, event.option))
    return found


def stage_states(story: Story) -> list[StateSpan]:
    """Of all stages, in order of stage and time; a state is over when the stage's next one begins."""
    by_stage: dict[int, list[StateSpan]] = {}
    for moment, event in story.of(StageDoing):
        spans = by_stage.setdefault(event.stage, [])
        before = spans[-1] if spans else None
        if before is not None and before.state is event.state:
            spans[-1] = StateSpan(event.stage, event.state, before.begin, moment.at, event.detail or before.detail)
            continue
        if before is not None:
            spans[-1] = StateSpan(before.stage, before.state, before.begin, moment.at, before.detail)
        spans.append(StateSpan(event.stage, event.state, moment.at, moment.at, event.detail))
    for spans in by_stage.values():
        last = spans[-1]
        if last.state not in _ENDS:
            spans[-1] = StateSpan(last.stage, last.state, last.begin, max(last.end, story.last_at), last.detail)
    return [span for stage in sorted(by_stage) for span in by_stage[stage]]


def joined_at(story: Story) -> dict[int, float]:
    """When the orchestrator first saw each stage alive."""
    found: dict[int, float] = {}
    for moment, event in story.of(MemberSeen):
        if event.seen_by is None and event.member is not None and event.state == "alive":
            found.setdefault(event.member, moment.at)
    return found
