"""Makes bundles of runs that never were, by a recipe: how long each stage computes, each hop takes, each start lasts.

They are written as a run writes them, event by event, so that the report reads them as it reads a real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ppsmoke.run_events import (
    EdgeMeasured,
    ErrorSeen,
    MemberSeen,
    PhaseEntered,
    PromptInjected,
    RunBegan,
    RunEnded,
    RunEvent,
    StageDoing,
    StageIsReady,
    StagePlaced,
    StageState,
    StepRan,
    TokenArrived,
    event_json,
)

REQUEST = "ab" * 16
RUN_ID = "0123456789abcdef" * 2
HAND_S = 0.0001
"""Each of what a hop has inside a node: from worker to node, writing, from node to worker."""


@dataclass
class Recipe:
    """Seconds. By stage, where not as the usual: `compute`, `join`, `load`, `compile`; by (source, target): `wire`.

    `stops_after`: the run's record ends with this token. `reader`: the orchestrator takes a token so long after it
    came. `zero`: the time axis begins that long before the run.
    """

    stages: int = 4
    tokens: int = 12
    prompt_parts: int = 2
    usual_compute: float = 0.002
    usual_wire: float = 0.0005
    compute: Mapping[int, float] = field(default_factory=dict)
    wire: Mapping[tuple[int, int], float] = field(default_factory=dict)
    join: Mapping[int, float] = field(default_factory=dict)
    fetch: Mapping[int, float] = field(default_factory=dict)
    load: Mapping[int, float] = field(default_factory=dict)
    compile: Mapping[int, float] = field(default_factory=dict)
    by_orchestrator: float | None = None
    reader: float = 0.0001
    zero: float = 0.0
    remote: bool = False
    within: float = 0.0001


@dataclass
class Made:
    """What a bundle consists of."""

    events: list[dict[str, Any]] = field(default_factory=list)
    spans: list[StepRan] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] | None = None
    rental: dict[str, Any] | None = None
    offers: dict[str, Any] | None = None
    logs: dict[int, str] = field(default_factory=dict)
    end: float = 0.0
    within: float = 0.0

    def add(self, at: float, event: RunEvent, source: int | None = None) -> None:
        self.events.append(event_json(event, at=at, source=source))

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.events))
        (directory / "spans.jsonl").write_text(
            "".join(json.dumps({**asdict(span), "within": self.within}) + "\n" for span in self.spans)
        )
        (directory / "plan.json").write_text(json.dumps(self.plan))
        for name, body in (("run.json", self.run), ("rental.json", self.rental), ("offers.json", self.offers)):
            if body is not None:
                (directory / name).write_text(json.dumps(body))
        (directory / "environment.json").write_text(json.dumps({"run_id": RUN_ID, "began_unix": 1.8e9}))
        for stage, text in self.logs.items():
            (directory / f"stage-{stage}.log").write_text(text)
        return directory


def make(recipe: Recipe) -> Made:
    """A whole run that completed."""
    made = begin(recipe)
    ready_at = prepare(recipe, made)
    done_at = serve(recipe, made, ready_at)
    finish(recipe, made, done_at)
    return made


def begin(recipe: Recipe) -> Made:
    made = Made()
    feedback = "direct" if recipe.by_orchestrator is None else "orchestrator"
    made.within = recipe.within
    made.plan = {"plan": {"generation": {"feedback": feedback}}}
    layers = tuple((6 * stage, 6 * stage + 6) for stage in range(recipe.stages))
    made.add(recipe.zero, RunBegan(RUN_ID, "smollm2:135m", layers, 40, recipe.tokens, remote=recipe.remote))
    made.add(recipe.zero, PhaseEntered("Planning"))
    for stage in range(recipe.stages):
        made.add(recipe.zero + 0.01, StagePlaced(stage, f"pid {4711 + stage}"))
        made.add(recipe.zero + 0.01, StageDoing(stage, StageState.STARTING))
        made.logs[stage] = f"first line of stage {stage}\nlast line of stage {stage}\n"
    made.add(recipe.zero + 0.3, PhaseEntered("Joining", 30.0, "--join-timeout"))
    return made


def prepare(recipe: Recipe, made: Made, without: frozenset[int] = frozenset()) -> float:
    """Until all are ready, which is when it is over; the stages `without` never are."""
    joined = {stage: recipe.zero + recipe.join.get(stage, 0.5) for stage in range(recipe.stages)}
    for stage, at in joined.items():
        made.add(at - 0.1, StageDoing(stage, StageState.JOINING))
        made.add(at, MemberSeen(None, stage, "alive", 0))
    provisioned = max(joined.values())
    made.add(provisioned, PhaseEntered("Provisioning", 600.0, "--ready-timeout"))
    made.add(provisioned + 0.01, PhaseEntered("WaitingReady", 600.0, "--ready-timeout"))
    ready_at = provisioned
    for stage, at in joined.items():
        now = at
        for state, seconds in (
            (StageState.FETCHING, recipe.fetch.get(stage, 0.0)),
            (StageState.LOADING, recipe.load.get(stage, 0.2)),
            (StageState.COMPILING, recipe.compile.get(stage, 0.3)),
        ):
            if seconds:
                made.add(now, StageDoing(stage, state, "a detail" if state is StageState.COMPILING else ""))
            now += seconds
        if stage in without:
            continue
        now = max(now, provisioned + 0.05)
        made.add(now, StageDoing(stage, StageState.READY))
        load, compile_ = recipe.load.get(stage, 0.2), recipe.compile.get(stage, 0.3)
        made.add(now, StageIsReady(stage, "CPU", load, compile_, now - provisioned))
        ready_at = max(ready_at, now)
    for stage in range(recipe.stages):
        target = (stage + 1) % recipe.stages
        wire = recipe.wire.get((stage, target), recipe.usual_wire)
        path = "relay" if wire > 0.05 else "direct"
        made.add(ready_at, EdgeMeasured(stage, target, path, 2 * wire))
    return ready_at


def serve(recipe: Recipe, made: Made, at: float, until: tuple[int, int] | None = None) -> float:
    """The prompt and the tokens; `until` (sequence, stage) is the last step that was written."""
    made.add(at, PhaseEntered("Running", 600.0, "--response-timeout"))
    made.add(at, PromptInjected(REQUEST, 40))
    free = dict.fromkeys(range(recipe.stages), at)
    came = {(0, part): at + 0.0002 for part in range(recipe.prompt_parts)}
    now = at
    for sequence in range(recipe.tokens):
        parts = recipe.prompt_parts if sequence == 0 else 1
        for part in range(parts):
            arrived = came[sequence, part]
            for stage in range(recipe.stages):
                began = max(arrived + HAND_S, free[stage])
                done = began + recipe.compute.get(stage, recipe.usual_compute) * (8 if sequence == 0 else 1)
                back, written = done + HAND_S, done + 2 * HAND_S
                step = StepRan(stage, REQUEST, sequence, part, 20, arrived, began, done, back, written)
                made.spans.append(step)
                free[stage] = written
                if until == (sequence, stage):
                    made.end = written
                    return written
                target = (stage + 1) % recipe.stages
                arrived = written + recipe.wire.get((stage, target), recipe.usual_wire)
                now = done
        taken = now + 2 * HAND_S + recipe.reader
        made.add(taken, TokenArrived(REQUEST, sequence, 100 + sequence, _reason(recipe, sequence)))
        back_at = arrived if recipe.by_orchestrator is None else taken + recipe.by_orchestrator
        came[sequence + 1, 0] = back_at
    made.end = now
    return now


def finish(recipe: Recipe, made: Made, at: float) -> None:
    made.add(at + 0.001, PhaseEntered("TearingDown", 5.0, "--stop-timeout"))
    for stage in range(recipe.stages):
        made.add(at + 0.01, StageDoing(stage, StageState.STOPPED))
    made.add(at + 0.1, PhaseEntered("Done"))
    made.add(at + 0.12, RunEnded(0))
    made.run = {
        "run_id": RUN_ID,
        "model": "smollm2:135m",
        "num_stages": recipe.stages,
        "finish_reason": "max_tokens",
        "exit_status": 0,
        "timings": {"total_s": round(at + 0.12 - recipe.zero, 4), "stages": []},
    }


def fail(recipe: Recipe, made: Made, at: float, error: ErrorSeen) -> None:
    made.add(at, PhaseEntered("TearingDown", 5.0, "--stop-timeout"))
    made.add(at, error)
    if error.stage is not None:
        made.add(at, StageDoing(error.stage, StageState.FAILED, error.what))
    made.add(at + 0.2, RunEnded(1))


def _reason(recipe: Recipe, sequence: int) -> str | None:
    return "max_tokens" if sequence == recipe.tokens - 1 else None
