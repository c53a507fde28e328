"""A run as its bundle tells it: every file's content in one object, whatever of it there is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ppsmoke.bundle.reader import Bundle, Recorded
from ppsmoke.report.records import MOST_STAGES, well_formed
from ppsmoke.run_events import (
    ErrorSeen,
    PhaseEntered,
    PromptInjected,
    RunBegan,
    RunEnded,
    RunEvent,
    StagePlaced,
    StepRan,
    TokenArrived,
)

E = TypeVar("E", bound=RunEvent)


@dataclass(frozen=True, slots=True)
class Moment:
    """`event` as `source` saw it (None: the orchestrator), at a second of the run."""

    at: float
    source: int | None
    event: RunEvent


@dataclass(frozen=True, slots=True)
class Story:
    """Times are seconds since the run began, which was `began_unix_s` (UTC). `run` is the content of run.json, None
    where the run left none, `offers` that of offers.json; `moments` are in order of time, steps apart; `logs`: the last
    lines of each stage's log; `within`: how far off a stage's times may be; `alive`: the run is not over; `lost`: lines
    that could not be read; `missing`: files that are not there and should be.
    """

    run: Mapping[str, Any] | None
    plan: Mapping[str, Any]
    moments: tuple[Moment, ...]
    steps: tuple[StepRan, ...]
    rental: Mapping[str, Any] | None = None
    offers: Any = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    logs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    began_unix_s: float | None = None
    within: Mapping[int, float] = field(default_factory=dict)
    alive: bool = False
    lost: int = 0
    missing: tuple[str, ...] = ()

    def of(self, kind: type[E]) -> Iterator[tuple[Moment, E]]:
        """All records of one kind."""
        for moment in self.moments:
            if isinstance(moment.event, kind):
                yield moment, moment.event

    def last(self, kind: type[E]) -> E | None:
        found = None
        for _, found in self.of(kind):  # noqa: B007
            pass
        return found

    @property
    def began(self) -> RunBegan | None:
        return self.last(RunBegan)

    @property
    def run_id(self) -> str:
        return self.began.run_id if self.began is not None else str((self.run or {}).get("run_id") or "")

    @property
    def model_id(self) -> str:
        return self.began.model_id if self.began is not None else str((self.run or {}).get("model") or "")

    @property
    def stage_count(self) -> int:
        """As many as anything in the bundle speaks of."""
        if self.began is not None:
            return len(self.began.layers)
        named = [self.number("num_stages") or 0, *(step.stage + 1 for step in self.steps)]
        named += [event.stage + 1 for _, event in self.of(StagePlaced)]
        return int(min(max(named), MOST_STAGES))

    def layers(self, stage: int) -> tuple[int, int] | None:
        if self.began is not None and stage < len(self.began.layers):
            return self.began.layers[stage]
        row = self.stage_row(stage).get("layers")
        if not isinstance(row, list) or len(row) != 2 or not all(type(end) is int for end in row):
            return None
        return row[0], row[1]

    def number(self, *path: str) -> float | None:
        """A number of run.json, by its path."""
        found: Any = self.run
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None

    def stage_row(self, stage: int) -> Mapping[str, Any]:
        """What run.json says of a stage's times; empty without."""
        timings = (self.run or {}).get("timings")
        rows = timings.get("stages") if isinstance(timings, Mapping) else None
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and row.get("stage") == stage:
                return row
        return {}

    @property
    def error(self) -> ErrorSeen | None:
        """Why the run failed. What run.json says is the run's own last word."""
        said = (self.run or {}).get("error")
        if isinstance(said, Mapping):
            stage, phase = said.get("stage"), said.get("phase")
            return ErrorSeen(
                code=str(said.get("code") or "error"),
                what=str(said.get("message") or ""),
                remedy=str(said.get("remedy") or ""),
                stage=stage if isinstance(stage, int) else None,
                phase=str(phase) if phase else None,
            )
        return next((event for _, event in self.of(ErrorSeen)), None)

    @property
    def left_behind(self) -> str:
        """What the run could not verify as gone, in its words; empty for nothing."""
        said = (self.run or {}).get("left_behind")
        return said if isinstance(said, str) else ""

    @property
    def exit_status(self) -> int | None:
        """None: the run's end is in no file."""
        ended, said = self.last(RunEnded), self.number("exit_status")
        if ended is not None:
            return ended.exit_status
        return int(said) if said is not None else None

    @property
    def last_at(self) -> float:
        """The last second of which anything is known."""
        return max([0.0, *(moment.at for moment in self.moments), *(step.written for step in self.steps)])

    @property
    def injected_at(self) -> float | None:
        """When the first prompt went in."""
        return next((moment.at for moment, _ in self.of(PromptInjected)), None)

    @property
    def started_at(self) -> float | None:
        """When the start was over: the first prompt went in, or a held run began to wait for one."""
        idle = (moment.at for moment, event in self.of(PhaseEntered) if event.phase == "Idle")
        return min([at for at in (self.injected_at, next(idle, None)) if at is not None], default=None)

    def arrivals(self) -> dict[tuple[str, int], float]:
        """When the orchestrator had each token, by request and index."""
        return {(event.request_id, event.index): moment.at for moment, event in self.of(TokenArrived)}

    @property
    def fed_by_orchestrator(self) -> bool:
        """Whether each token goes back to the first stage through the orchestrator."""
        plan = self.plan.get("plan", self.plan)
        generation = plan.get("generation") if isinstance(plan, Mapping) else None
        return isinstance(generation, Mapping) and generation.get("feedback") == "orchestrator"


def tell(bundle: Bundle, logs: Mapping[int, Sequence[str]] | None = None, *, alive: bool = False) -> Story:
    """The bundle's story, from the run's beginning on; `logs` and `alive` as Story has them."""
    moments = [record for record in bundle.events if _is_sound(record)]
    steps = [span.step for span in bundle.spans if well_formed(span.step)]
    lost = bundle.skipped + len(bundle.events) + len(bundle.spans) - len(moments) - len(steps)
    began = (record.at for record in moments if isinstance(record.event, RunBegan))
    first = min([*(record.at for record in moments[:1]), *(step.arrived for step in steps[:1])], default=0.0)
    zero = next(began, first)
    unix = (bundle.environment or {}).get("began_unix")
    within: dict[int, float] = {}
    for span in bundle.spans:
        if well_formed(span.step) and math.isfinite(span.within):
            within[span.step.stage] = max(span.within, within.get(span.step.stage, 0.0))
    return Story(
        run=bundle.run,
        plan=bundle.plan or {},
        moments=tuple(Moment(record.at - zero, record.source, record.event) for record in moments),
        steps=tuple(sorted((_moved(step, zero) for step in steps), key=lambda step: (step.arrived, step.stage))),
        rental=bundle.rental,
        offers=bundle.offers,
        environment=bundle.environment or {},
        logs=logs or {},
        began_unix_s=unix + zero if isinstance(unix, int | float) else None,
        within=within,
        alive=alive,
        lost=lost,
        missing=bundle.missing,
    )


def _is_sound(record: Recorded) -> bool:
    return math.isfinite(record.at) and not isinstance(record.event, StepRan) and well_formed(record.event)


def _moved(step: StepRan, zero: float) -> StepRan:
    return replace(
        step,
        arrived=step.arrived - zero,
        began=step.began - zero,
        done=step.done - zero,
        back=step.back - zero,
        written=step.written - zero,
    )
