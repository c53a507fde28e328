"""A run as a tree of spans, as tracing systems have them: the run, its phases, its stages, what each was at, its steps.

Pure. Times are seconds since the run began. The ids follow from the run's, so that the same run gives the same spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from ppsmoke.report.analysis import Analysis
from ppsmoke.report.story import Story
from ppsmoke.run_events import StepRan

MOST_STEPS = 5000


@dataclass(frozen=True, slots=True)
class Span:
    """`parent`: its id, None for the run itself. `failure`: why, where it did not end well."""

    id: int
    parent: int | None
    name: str
    begin: float
    end: float
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    failure: str | None = None


def run_spans(story: Story, analysis: Analysis) -> Iterator[Span]:
    """The run first. Of steps the first MOST_STEPS; how many are left out is an attribute of the run."""
    numbers = count()

    def fresh() -> int:
        digest = hashlib.blake2b(f"{analysis.run_id}/{next(numbers)}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) or 1

    run = _run(story, analysis, fresh())
    yield run
    for phase in analysis.phases:
        yield Span(fresh(), run.id, f"phase {phase.phase}", phase.begin, phase.end)
    for stage in range(analysis.stage_count):
        yield from _stage(story, analysis, stage, run.id, fresh)


def _run(story: Story, a: Analysis, span_id: int) -> Span:
    attributes: dict[str, str | int | float | bool] = {
        "pp.run_id": a.run_id,
        "pp.model": a.model_id,
        "pp.stages": a.stage_count,
        "pp.tokens": a.tokens,
        "pp.outcome": a.ending.how,
        "pp.steps_left_out": max(0, len(story.steps) - MOST_STEPS),
    }
    known = {"pp.exit_status": a.ending.exit_status, "pp.tokens_per_s": a.tokens_per_s, "pp.ttft_s": a.ttft_s}
    attributes |= {name: value for name, value in known.items() if value is not None}
    attributes |= {f"pp.bounded.{found.about}": found.sentence for found in a.culprits}
    failure = None if a.ending.how == "completed" else a.ending.sentence
    return Span(span_id, None, "pp-smoke-run", 0.0, story.last_at, attributes, failure)


def _stage(story: Story, a: Analysis, stage: int, run: int, fresh: Callable[[], int]) -> Iterator[Span]:
    states = [span for span in a.states if span.stage == stage]
    steps = [step for step in story.steps[:MOST_STEPS] if step.stage == stage]
    begins = [*(span.begin for span in states), *(step.arrived for step in steps)]
    if not begins:
        return
    end = max([*(span.end for span in states), *(step.written for step in steps)])
    figures = a.stages[stage]
    about: dict[str, str | int | float | bool] = {
        "pp.stage": stage,
        "pp.host": figures.host,
        "pp.device": figures.device,
    }
    whole = Span(fresh(), run, f"stage {stage}", min(begins), end, about)
    yield whole
    for state in states:
        detail = {"pp.detail": state.detail} if state.detail else {}
        yield Span(fresh(), whole.id, state.doing, state.begin, state.end, detail)
    for step in steps:
        yield _step(step, fresh(), whole.id)


def _step(step: StepRan, span_id: int, parent: int) -> Span:
    about: dict[str, str | int | float | bool] = {
        "pp.request_id": step.request_id,
        "pp.sequence": step.sequence,
        "pp.part": step.part,
        "pp.rows": step.seq_len,
        "pp.inward_s": step.began - step.arrived,
        "pp.compute_s": step.done - step.began,
        "pp.outward_s": step.back - step.done,
        "pp.write_s": step.written - step.back,
    }
    name = "prefill step" if step.sequence == 0 else "decode step"
    return Span(span_id, parent, name, step.arrived, step.written, about)
