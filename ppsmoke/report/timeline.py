"""When each stage was at what, and the run in which phase: spans out of single moments. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ppsmoke.report.story import Story
from ppsmoke.run_events import MemberSeen, PhaseEntered, StageDoing, StageState

_ENDS = (StageState.STOPPED, StageState.FAILED)
_AFTER_JOINING = (
    StageState.FETCHING,
    StageState.LOADING,
    StageState.COMPILING,
    StageState.LOADED,
    StageState.LINKING,
    StageState.READY,
)


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

    @property
    def title(self) -> str:
        """As errors, options and tables have it: nothing is planned any more by the time it begins."""
        return "Boot" if self.phase == "Planning" else self.phase


@dataclass(frozen=True, slots=True)
class StateSpan:
    """`detail`: the last that was said of it. `counted`: it told how much of it was done."""

    stage: int
    state: StageState
    begin: float
    end: float
    detail: str = ""
    counted: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def doing(self) -> str:
        """'compiling'. Before a stage has anything to count it prepares for that: 'starting its worker'."""
        return (
            self.detail if self.state is StageState.LOADING and not self.counted and self.detail else self.state.value
        )

    @property
    def remark(self) -> str:
        """' (compiling 3 of 8 kernels)', where that says more."""
        return f" ({self.detail})" if self.detail and self.detail != self.doing else ""


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
        counted = event.done is not None
        if before is not None and event.state is StageState.JOINING and before.state in _AFTER_JOINING:
            continue  # the stage's own word of what it did next was here first
        if before is not None:
            spans[-1] = before = replace(before, end=moment.at)
        if before is not None and before.state is event.state and (before.counted or not counted):
            spans[-1] = replace(before, detail=event.detail or before.detail)
            continue
        spans.append(StateSpan(event.stage, event.state, moment.at, moment.at, event.detail, counted))
    for spans in by_stage.values():
        last = spans[-1]
        if last.state not in _ENDS:
            spans[-1] = replace(last, end=max(last.end, story.last_at))
    return [span for stage in sorted(by_stage) for span in by_stage[stage]]


def joined_at(story: Story) -> dict[int, float]:
    """When the orchestrator first saw each stage alive."""
    found: dict[int, float] = {}
    for moment, event in story.of(MemberSeen):
        if event.seen_by is None and event.member is not None and event.state == "alive":
            found.setdefault(event.member, moment.at)
    return found
