"""What happened in a run and what bounded it, as figures and sentences. Pure: the report's pages only lay it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from ppsmoke.report import culprit
from ppsmoke.report.critical_path import Share, TokenPath, decode_paths, prefill_path, shares
from ppsmoke.report.ending import Ending, ending
from ppsmoke.report.outlier import slowest_token
from ppsmoke.report.story import Story
from ppsmoke.report.timeline import PhaseSpan, StateSpan, joined_at, phases, stage_states
from ppsmoke.run_events import (
    EdgeMeasured,
    MemberSeen,
    MoneySpent,
    PathChanged,
    PromptInjected,
    RecordsDropped,
    StageIsReady,
    StagePlaced,
    StepRan,
    TokenArrived,
)
from ppsmoke.stats import percentile

_TAIL_LINES = 12
_ENDING = re.compile(r" -> (Faulted|Stopping|Stopped)$")


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Seconds. `boot`: from the run's beginning until the stage had joined; `load`, `compile`, `ready` as the stage
    told them; `compute`, `wait`, `hop`: a mean decode step's computing, its wait for its object, and its handing over
    inside the node, on both sides of the computing."""

    stage: int
    layers: tuple[int, int] | None
    host: str
    device: str
    boot: float | None
    load: float | None
    compile: float | None
    ready: float | None
    ready_at: float | None
    prefill: float | None
    decode_p50: float | None
    decode_p99: float | None
    compute: float | None
    wait: float | None
    hop: float | None
    steps: int


@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """`path` and `round_trip_s` as measured before the first token; `hop` as the tokens took it."""

    source: int | None
    target: int | None
    path: str
    round_trip_s: float | None
    bytes_per_s: float | None
    changes: int
    hop: Share | None


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """A rented machine, also one that failed and was replaced; `state` 'gone': verified as destroyed."""

    instance: int | None
    stage: int | None
    price_per_hour: float | None
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Analysis:
    run_id: str
    model_id: str
    stage_count: int
    prompt_tokens: int | None
    answers: int | None  # of a run that was held
    tokens: int
    finish_reason: str | None
    remote: bool
    ending: Ending
    total_s: float
    ttft_s: float | None
    tokens_per_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None
    phases: tuple[PhaseSpan, ...]
    states: tuple[StateSpan, ...]
    stages: tuple[StageFigures, ...]
    edges: tuple[EdgeFigures, ...]
    paths: tuple[TokenPath, ...]
    prefill: TokenPath | None
    shares: tuple[Share, ...]
    prefill_shares: tuple[Share, ...]
    members: tuple[tuple[float, MemberSeen], ...]
    money: MoneySpent | None
    machines: tuple[MachineFigures, ...]
    offers: tuple[tuple[str, int], ...]
    culprits: tuple[culprit.Culprit, ...]
    log_tail: tuple[str, ...]
    lost: int
    steps_dropped: int
    missing: tuple[str, ...]  # files that the run's directory lacks

    def as_json(self) -> dict[str, Any]:
        """Without single tokens' paths, which are in the trace."""
        body = {name: getattr(self, name) for name in self.__slots__ if name not in ("paths", "prefill", "members")}
        body["token_s"] = sum(share.mean_s for share in self.shares) or None
        body["members"] = [{"at": at, **asdict(event)} for at, event in self.members]
        return {name: _plain(value) for name, value in body.items()}


def analyse(story: Story) -> Analysis:
    """Everything that the report says of a run."""
    count = story.stage_count
    arrivals = story.arrivals()
    paths = decode_paths(story.steps, count, arrivals=arrivals if story.fed_by_orchestrator else None)
    first = _first_request(story)
    prefill = prefill_path(story.steps, count, *first) if first is not None else None
    token_shares = shares(paths)
    prefill_shares = shares([prefill]) if prefill is not None else []
    edges = _edges(story, token_shares)
    states, phase_spans = stage_states(story), phases(story)
    blamed = [*culprit.culprits(story, token_shares, prefill_shares, states), slowest_token(story, paths)]
    dropped = {event.stage: event.steps for _, event in story.of(RecordsDropped)}
    end = ending(story, states)
    gaps = _gaps(story)
    told = _told_rate(story)
    tail = _before_the_end(story.logs.get(end.stage, ())) if end.stage is not None else ()
    return Analysis(
        run_id=story.run_id,
        model_id=story.model_id,
        stage_count=count,
        prompt_tokens=_whole(story.began.prompt_tokens if story.began else story.number("prompt_tokens")),
        answers=_whole(story.number("answers")),
        tokens=_arrived(arrivals) or _token_count(story),
        finish_reason=_finish_reason(story),
        remote=story.began is not None and story.began.remote,
        ending=end,
        total_s=story.number("timings", "total_s") or story.last_at,
        ttft_s=_ttft(story, arrivals),
        tokens_per_s=len(gaps) / sum(gaps) if sum(gaps) > 0 else told,
        gap_p50_s=percentile(gaps, 50) if gaps else story.number("timings", "decode_p50_s"),
        gap_p99_s=percentile(gaps, 99) if gaps else story.number("timings", "decode_p99_s"),
        phases=tuple(phase_spans),
        states=tuple(states),
        stages=tuple(_stage(story, stage) for stage in range(count)),
        edges=tuple(edges),
        paths=tuple(paths),
        prefill=prefill,
        shares=tuple(token_shares),
        prefill_shares=tuple(prefill_shares),
        members=tuple((moment.at, event) for moment, event in story.of(MemberSeen)),
        money=_money(story),
        machines=tuple(_machines(story)),
        offers=tuple(_offers(story)),
        culprits=tuple(found for found in blamed if found is not None),
        log_tail=tuple(tail),
        lost=story.lost,
        steps_dropped=sum(dropped.values()),
        missing=story.missing,
    )


def _before_the_end(lines: Sequence[str]) -> Sequence[str]:
    """The lines that led to a stage's end; its orderly ending, which follows, says nothing of the cause."""
    ends = [index for index, line in enumerate(lines) if _ENDING.search(line)]
    return lines[: ends[0] + 1][-_TAIL_LINES:] if ends else lines[-_TAIL_LINES:]


def _stage(story: Story, stage: int) -> StageFigures:
    row = story.stage_row(stage)
    ready = [(moment.at, event) for moment, event in story.of(StageIsReady) if event.stage == stage]
    at, said = ready[-1] if ready else (None, None)
    steps = [step for step in story.steps if step.stage == stage]
    prompt = [step for step in steps if step.sequence == 0]
    decode = [step for step in steps if step.sequence > 0]
    totals = [step.written - step.arrived for step in decode]
    waits = [
        max(0.0, after.arrived - before.written)
        for before, after in pairwise(decode)
        if before.request_id == after.request_id and after.sequence == before.sequence + 1
    ]
    placed = [event.host for _, event in story.of(StagePlaced) if event.stage == stage]
    return StageFigures(
        stage=stage,
        layers=story.layers(stage),
        host=placed[-1] if placed else "",
        device=said.device if said is not None else str(row.get("device") or ""),
        boot=joined_at(story).get(stage),
        load=said.load_s if said is not None else _number(row, "load_s"),
        compile=said.compile_s if said is not None else _number(row, "compile_s"),
        ready=said.ready_s if said is not None else _number(row, "ready_s"),
        ready_at=at,
        prefill=_whole_prompt(prompt) if prompt else _number(row, "prefill_s"),
        decode_p50=percentile(totals, 50) if totals else _number(row, "decode_p50_s"),
        decode_p99=percentile(totals, 99) if totals else _number(row, "decode_p99_s"),
        compute=_mean([step.done - step.began for step in decode]) if decode else _number(row, "compute_p50_s"),
        wait=_mean(waits),
        hop=_mean([_handing(step) for step in decode]) if decode else _told_handing(row),
        steps=len(steps),
    )


def _whole_prompt(parts: Sequence[StepRan]) -> float:
    """From the arrival of a request's first part until the last one was written; of the first request."""
    first = [step for step in parts if step.request_id == parts[0].request_id]
    return max(step.written for step in first) - first[0].arrived


def _handing(step: StepRan) -> float:
    return max(0.0, step.began - step.arrived) + max(0.0, step.written - step.done)


def _told_handing(row: Mapping[str, Any]) -> float | None:
    known = [_number(row, f"{part}_p50_s") for part in ("inward", "outward", "write")]
    return sum(part for part in known if part is not None) if None not in known else None


def _edges(story: Story, token_shares: Sequence[Share]) -> list[EdgeFigures]:
    measured = {(event.source, event.target): event for _, event in story.of(EdgeMeasured)}
    changed = [event for _, event in story.of(PathChanged)]
    hops = {(s.place.source, s.place.target): s for s in token_shares if not s.place.is_stage}
    last = story.stage_count - 1
    loop = {(stage, stage + 1) for stage in range(last)} | {(last, 0), (None, 0), (last, None)}
    # Ways that no token goes were measured too.
    ways = {*hops, *(way for way in measured if way in loop)}
    found = []
    for source, target in sorted(ways, key=lambda way: tuple(-1 if end is None else end for end in way)):
        probe = measured.get((source, target)) or measured.get((target, source))
        moves = [event for event in changed if {event.source, event.target} == {source, target}]
        found.append(
            EdgeFigures(
                source=source,
                target=target,
                path=moves[-1].after if moves else probe.path if probe is not None else "",
                round_trip_s=probe.round_trip_s if probe is not None else None,
                bytes_per_s=probe.bytes_per_s if probe is not None else None,
                changes=len(moves),
                hop=hops.get((source, target)),
            )
        )
    return found


def _first_request(story: Story) -> tuple[str, float] | None:
    return next(((event.request_id, moment.at) for moment, event in story.of(PromptInjected)), None)


def _ttft(story: Story, arrivals: Mapping[tuple[str, int], float]) -> float | None:
    first = _first_request(story)
    if first is not None and (first[0], 0) in arrivals:
        return arrivals[first[0], 0] - first[1]
    return story.number("ttft_s")


def _gaps(story: Story) -> list[float]:
    """Between tokens that followed each other in one request."""
    arrived = list(story.of(TokenArrived))
    return [
        right.at - left.at
        for (left, before), (right, after) in pairwise(arrived)
        if before.request_id == after.request_id and after.index == before.index + 1
    ]


def _arrived(arrivals: Iterable[tuple[str, int]]) -> int:
    """How many tokens came; of a long run some have no record, but the last one of each answer has."""
    most: dict[str, int] = {}
    for request, index in arrivals:
        most[request] = max(index + 1, most.get(request, 0))
    return sum(most.values())


def _told_rate(story: Story) -> float | None:
    return story.number("decode_tok_s")


def _token_count(story: Story) -> int:
    tokens = (story.run or {}).get("tokens")
    return len(tokens) if isinstance(tokens, list) else 0


def _finish_reason(story: Story) -> str | None:
    last = story.last(TokenArrived)
    said = (story.run or {}).get("finish_reason")
    return (last.finish_reason if last is not None else None) or (str(said) if said else None)


def _money(story: Story) -> MoneySpent | None:
    if story.rental is not None:
        hour, spent = _number(story.rental, "price_per_hour_usd"), _number(story.rental, "spent_usd")
        if hour is not None and spent is not None:
            return MoneySpent(hour, spent)
    return story.last(MoneySpent)


def _machines(story: Story) -> Iterator[MachineFigures]:
    rows = (story.rental or {}).get("instances")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping):
            yield MachineFigures(
                instance=_whole(_number(row, "id")),
                stage=_whole(_number(row, "stage")),
                price_per_hour=_number(row, "price_per_hour_usd"),
                state=str(row.get("state") or "-"),
                reason=str(row.get("reason") or ""),
            )


def _offers(story: Story) -> Iterator[tuple[str, int]]:
    """How many offers were chosen, and how many left out for which reason, the most frequent first."""
    rows = story.offers.get("considered") if isinstance(story.offers, Mapping) else None
    reasons: Counter[str] = Counter()
    for row in rows if isinstance(rows, list) else ():
        left_out = row.get("left_out") if isinstance(row, Mapping) else None
        reasons.update(map(str, left_out) if isinstance(left_out, list) else ["chosen"])
    yield from sorted(reasons.items(), key=lambda pair: (pair[0] != "chosen", -pair[1], pair[0]))


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(value: Any) -> Any:
    """As JSON has it; seconds to the microsecond."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
