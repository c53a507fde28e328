"""Who bounded the run: the tokens, the prompt, the start. Pure.

Somebody is named who takes much longer than the others of his kind: only that could be gained by making him like them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from ppsmoke.figures import percent, seconds, span
from ppsmoke.report.critical_path import HOP_PARTS, Place, Share
from ppsmoke.report.story import Story
from ppsmoke.report.timeline import StateSpan, joined_at
from ppsmoke.run_events import EdgeMeasured, StageDoing, StageIsReady, StageState, TokenArrived

_EXCESS = 0.1  # of the whole, over the median of the others: less is no culprit
_LATE = 0.2  # of the start
_LATE_S = 0.3
_LAG_TOKENS = 3.0
_LAG_S = 0.05
_DOING = {
    StageState.RENTING: "was being rented",
    StageState.STARTING: "was starting",
    StageState.JOINING: "was joining",
    StageState.FETCHING: "fetched its weights",
    StageState.LOADING: "loaded its weights",
    StageState.COMPILING: "compiled",
    StageState.LINKING: "opened its edges",
}


@dataclass(frozen=True, slots=True)
class Culprit:
    """`place`: the stage or edge that stands out, None where none does; `share`: its part of the whole."""

    about: Literal["start", "prompt", "tokens", "slowest"]
    sentence: str
    place: Place | None = None
    share: float | None = None


def culprits(
    story: Story, token_shares: Sequence[Share], prefill_shares: Sequence[Share], states: Sequence[StateSpan]
) -> Iterator[Culprit]:
    """In the order of a run; for what is not known there is none."""
    start = _start(story, states)
    if start is not None:
        yield start
    if prefill_shares:
        yield _of_shares("prompt", prefill_shares, "the way to the first token", story)
    reader = _slow_reader(story)
    if reader is not None:
        yield reader
    elif token_shares:
        yield _of_shares("tokens", token_shares, "a token's time", story)
    else:
        rough = _from_medians(story)
        if rough is not None:
            yield rough


def _of_shares(about: Literal["prompt", "tokens"], found: Sequence[Share], whole_name: str, story: Story) -> Culprit:
    whole = sum(share.mean_s for share in found)
    excesses = [(_excess(share, found), share) for share in found]
    excess, worst = max(excesses, key=lambda pair: pair[0])
    if excess < _EXCESS * whole:
        computing = sum(share.share for share in found if share.place.is_stage)
        largest = max(found, key=lambda share: share.mean_s)
        sentence = (
            f"no stage or edge stands out: of {whole_name}, {seconds(whole)}, the stages compute {percent(computing)} "
            f"and the edges take {percent(1 - computing)}{_mostly(found)}; "
            f"the largest share is that of {largest.place.describe()}, {percent(largest.share)}"
        )
        return Culprit(about, sentence)
    others = [s for s in found if s.place.is_stage == worst.place.is_stage and s is not worst]
    beside = f"; the others {span([s.mean_s for s in others])}" if others else ""
    if about == "prompt" and others and any(s.count > 1 for s in (worst, *others)):
        beside = f"; a part of the prompt takes it {seconds(worst.p50_s)}, the others {span([s.p50_s for s in others])}"
    took = f"{seconds(worst.mean_s)} of {seconds(whole)}"
    if worst.place.is_stage:
        sentence = f"{worst.place.describe()} computes {percent(worst.share)} of {whole_name}, {took}{beside}"
    elif None in (worst.place.source, worst.place.target):
        sentence = f"waiting for the orchestrator, {worst.place.describe()}: {took}, {percent(worst.share)}{beside}"
    else:
        sentence = f"{worst.place.describe()}: hop {took}, {percent(worst.share)}{_most_of(worst)}{beside}"
        sentence += _way(story, worst.place) + _doubt(story, worst.place, excess)
    return Culprit(about, sentence, worst.place, worst.share)


def _excess(share: Share, found: Sequence[Share]) -> float:
    """What would be gained if each time took as long as with the others of the kind. Not all places are passed equally
    often: of a prompt in parts, all are awaited in one stage and only one in the others."""
    others = [s.mean_s / s.count for s in found if s.place.is_stage == share.place.is_stage and s is not share]
    return share.mean_s - share.count * median(others) if others else share.mean_s


def _mostly(found: Sequence[Share]) -> str:
    """Which part of all hops together is the largest."""
    known = [share.parts for share in found if share.parts]
    sums = {name: sum(parts[name] for parts in known) for name in HOP_PARTS}
    whole = sum(sums.values())
    if whole <= 0:
        return ""
    where = {
        "outward": "from worker to node",
        "write": "until it was written",
        "wire": "on the wire",
        "inward": "from node to worker",
    }
    name = max(HOP_PARTS, key=lambda part: sums[part])
    return f", {percent(sums[name] / whole)} of that {where[name]}"


def _most_of(share: Share) -> str:
    """Which part of a hop it is that takes the time."""
    if not share.parts:
        return ""
    name = max(HOP_PARTS, key=lambda part: (share.parts or {})[part])
    where = {
        "outward": f"from worker to node in stage {share.place.source}",
        "write": f"until stage {share.place.source} had written",
        "wire": "on the wire",
        "inward": f"from node to worker in stage {share.place.target}",
    }[name]
    return f", {seconds(share.parts[name])} of it {where}"


def _way(story: Story, place: Place) -> str:
    for _, event in story.of(EdgeMeasured):
        if {event.source, event.target} == {place.source, place.target} and event.round_trip_s is not None:
            return f"; path {event.path}, round trip {seconds(event.round_trip_s)}"
    return ""


def _doubt(story: Story, place: Place, excess: float) -> str:
    """Processes of one machine share its clock. Those of two know only so well when the other one did what."""
    if story.began is None or not story.began.remote:
        return ""
    within = sum(story.within.get(end, 0.0) for end in (place.source, place.target) if end is not None)
    return f"; their clocks agree to {seconds(within)} only" if within >= excess else ""


def _slow_reader(story: Story) -> Culprit | None:
    """With direct feedback the orchestrator only reads; tokens that lie long until they are taken hold the chain up."""
    if story.fed_by_orchestrator:
        return None
    last = story.stage_count - 1
    made = {(step.request_id, step.sequence): step.done for step in story.steps if step.stage == last}
    arrived = [(moment.at, (event.request_id, event.index)) for moment, event in story.of(TokenArrived)]
    lags = [at - made[key] for at, key in arrived if key in made]
    if len(arrived) < 2 or not lags:
        return None
    token_s = (arrived[-1][0] - arrived[0][0]) / (len(arrived) - 1)
    lag = median(lags)
    if lag < _LAG_S or lag < _LAG_TOKENS * token_s:
        return None
    return Culprit(
        "tokens",
        f"waiting for the orchestrator: a token lay {seconds(lag)} until it was taken; the text's reader was slow",
        Place(last, None),
    )


def _from_medians(story: Story) -> Culprit | None:
    """Of a run whose steps were not recorded, with what the stages summed up themselves."""
    rows = [(stage, story.stage_row(stage).get("compute_p50_s")) for stage in range(story.stage_count)]
    known = [(stage, value) for stage, value in rows if isinstance(value, int | float)]
    hop = story.number("timings", "hop_s")
    if not known or len(known) != len(rows) or hop is None:
        return None
    whole = sum(value for _, value in known) + hop * len(known)
    if whole <= 0:
        return None
    found = [Share(Place(stage, stage), value, value, value, value / whole) for stage, value in known]
    ends = [(stage, (stage + 1) % len(known)) for stage, _ in known]
    found += [Share(Place(*edge), hop, hop, hop, hop / whole) for edge in ends]
    return _of_shares("tokens", sorted(found, key=lambda share: -share.mean_s), "a token's time", story)


def _start(story: Story, states: Sequence[StateSpan]) -> Culprit | None:
    """What the prompt waited for. All wait for the last one until it has joined, until it is ready; on rented machines
    also until the service says that it runs."""
    end = story.started_at
    joined = joined_at(story)
    ready: dict[int, float] = {}
    for moment, event in story.of(StageIsReady):
        ready.setdefault(event.stage, moment.at)  # what new code did later is no part of the start
    if end is None or end <= 0 or not ready:
        return None
    join_by = _late(joined, 0.0)
    ready_by = _late(ready, max(joined.values(), default=0.0))
    running = _running(story, end) if story.began is not None and story.began.remote else {}
    running_by = _late(running, max(joined.values(), default=0.0))
    longest = _longest(states, max(ready, key=lambda stage: ready[stage]), end)
    late = max((by for by in (join_by, running_by, ready_by) if by is not None), key=lambda by: by[1], default=None)
    if late is None or late[1] < max(_LATE_S, _LATE * end):
        what = f"; the longest step was {longest.doing}, {seconds(longest.seconds)}" if longest else ""
        did = "the prompt went in" if end == story.injected_at else "the chain was ready for a prompt"
        return Culprit("start", f"no stage was late: {did} after {seconds(end)}{what}")
    stage, behind = late
    verb, until = "was ready", ready[stage]
    if late is join_by:
        verb, until = "joined", joined[stage]
    elif late is running_by:
        verb, until = "was known to run", running[stage]
    cause = _longest(states, stage, until)
    why = ""
    if cause is not None:
        did = _DOING[cause.state] if cause.doing == cause.state.value else f"was {cause.doing}"
        why = f": it {did} for {seconds(cause.seconds)}{cause.remark}"
    return Culprit(
        "start",
        f"stage {stage} {verb} last, {seconds(behind)} after all others{why}",
        Place(stage, stage),
        behind / end,
    )


def _running(story: Story, end: float) -> dict[int, float]:
    """When the last word about each stage's machine, rather than from its node, came."""
    return {
        event.stage: moment.at
        for moment, event in story.of(StageDoing)
        if event.state in (StageState.RENTING, StageState.STARTING) and moment.at <= end
    }


def _late(at: dict[int, float], not_before: float) -> tuple[int, float] | None:
    """Who came last, and how long after everybody else could have gone on."""
    if len(at) < 2:
        return None
    last = max(at, key=lambda stage: at[stage])
    others = max(value for stage, value in at.items() if stage != last)
    return last, at[last] - max(others, not_before)


def _longest(states: Sequence[StateSpan], stage: int, until: float) -> StateSpan | None:
    """What the stage spent most time at before `until`."""
    spans = [
        replace(s, end=min(s.end, until)) for s in states if s.stage == stage and s.begin < until and s.state in _DOING
    ]
    return max(spans, key=lambda s: s.seconds, default=None)
