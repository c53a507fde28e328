"""What is measured and what came out: cases, samples, and the statistics over the rounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

Figures = Mapping[str, float]


class NotMeasured(Exception):
    """A run that failed, in words: it is named in the report and is in no statistic."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    `who`: worker (the whole model in one worker), chain (pp-smoke-run), llama (one process of llama.cpp), llama-rpc.
    `stages`: worker processes; 0 for llama, whose one process is no stage. `threads`: of each process, 0 as it chooses
    itself. `variant` tells apart what differs in nothing else, such as a batch size.
    """

    who: str
    what: str
    stages: int
    threads: int = 0
    variant: str = ""

    def __str__(self) -> str:
        parts = [self.who, self.what]
        parts += [f"N={self.stages}"] if self.stages else []
        parts += [f"{self.threads} thread{'s' if self.threads > 1 else ''}"] if self.threads else []
        parts += [self.variant] if self.variant else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a case. `foreign_cores`: cores that others used meanwhile. With an `error` there are no figures."""

    round: int
    case: Case
    figures: Figures = field(default_factory=dict)
    foreign_cores: float | None = None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "case": str(self.case)}


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of `count` values."""

    median: float
    low: float
    high: float
    count: int

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}


def spread(values: Sequence[float]) -> Spread | None:
    """None of no values."""
    return Spread(median(values), min(values), max(values), len(values)) if values else None


class Samples:
    """All samples of a run of the bench."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.all = list(samples)

    def add(self, sample: Sample) -> None:
        self.all.append(sample)

    @property
    def failed(self) -> list[Sample]:
        return [sample for sample in self.all if sample.error is not None]

    def cases(self) -> list[Case]:
        """Each case once, in the order they were first measured."""
        return list(dict.fromkeys(sample.case for sample in self.all))

    def by_round(self, case: Case, figure: str) -> dict[int, float]:
        """The figure in each round that has it."""
        return {
            sample.round: sample.figures[figure]
            for sample in self.all
            if sample.case == case and sample.error is None and figure in sample.figures
        }

    def spread(self, case: Case, figure: str) -> Spread | None:
        return spread(list(self.by_round(case, figure).values()))

    def ratio(self, case: Case, other: Case, figure: str) -> Spread | None:
        """`case` over `other`, pair by pair: only rounds count in which both were measured."""
        ours, theirs = self.by_round(case, figure), self.by_round(other, figure)
        return spread([ours[index] / theirs[index] for index in sorted(ours.keys() & theirs.keys()) if theirs[index]])

    def difference(self, case: Case, other: Case, figure: str) -> Spread | None:
        """`case` minus `other`, pair by pair."""
        ours, theirs = self.by_round(case, figure), self.by_round(other, figure)
        return spread([ours[index] - theirs[index] for index in sorted(ours.keys() & theirs.keys())])

    def best(self, figure: str, who: str, what: str, stages: int) -> Case | None:
        """The case with the greatest median of `figure`, whatever its threads and variant."""
        found = [
            (measured.median, case)
            for case in self.cases()
            if (case.who, case.what, case.stages) == (who, what, stages)
            and (measured := self.spread(case, figure)) is not None
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None
