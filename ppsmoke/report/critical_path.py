"""What a token's time is made of: the chain of computing and hops round the loop that it could not do without. Pure.

A token's time goes from the end of the last stage's computing of the token before to that of its own. It is cut,
without a gap, into the computing of every stage and the hops between them: a hop goes from the end of computing in one
stage to its beginning in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ppsmoke.run_events import StepRan
from ppsmoke.stats import percentile

HOP_PARTS = ("outward", "write", "wire", "inward")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A stage, or the edge between two; an edge's end that is None is the orchestrator."""

    source: int | None
    target: int | None

    @property
    def is_stage(self) -> bool:
        return self.source == self.target

    def describe(self) -> str:
        if self.is_stage:
            return f"stage {self.source}"
        return f"edge {_end(self.source)} -> {_end(self.target)}"


@dataclass(frozen=True, slots=True)
class Link:
    """A piece of a path. Of a hop between two stages `parts` are the seconds of what it consists of (HOP_PARTS)."""

    place: Place
    begin: float
    end: float
    parts: tuple[float, float, float, float] | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class TokenPath:
    """The links of one token, each beginning where the one before ended."""

    request_id: str
    sequence: int
    links: tuple[Link, ...]

    @property
    def seconds(self) -> float:
        return self.links[-1].end - self.links[0].begin


@dataclass(frozen=True, slots=True)
class Share:
    """What one place takes of the tokens' time: seconds a token, and the part of the whole. `p50_s`, `p99_s`: of the
    single times; `count`: how many of them a token has; `parts`: means."""

    place: Place
    mean_s: float
    p50_s: float
    p99_s: float
    share: float
    count: float = 1.0
    parts: Mapping[str, float] | None = None


def decode_paths(
    steps: Iterable[StepRan],
    stage_count: int,
    *,
    arrivals: Mapping[tuple[str, int], float] | None = None,
) -> list[TokenPath]:
    """A path for each token after the first of its request of which all steps are known.

    `arrivals`: when the orchestrator had the tokens, by request and index, where it feeds them back.
    """
    last_stage = stage_count - 1
    # Of a prompt in parts the last one counts: with it the first token's time ended.
    by_place = {(s.request_id, s.sequence, s.stage): s for s in sorted(steps, key=lambda step: step.part)}
    found = []
    for request_id, sequence, stage in by_place:
        before = by_place.get((request_id, sequence - 1, last_stage))
        chain = [by_place.get((request_id, sequence, index)) for index in range(stage_count)]
        known = [step for step in chain if step is not None]
        if stage != last_stage or sequence == 0 or before is None or len(known) != stage_count:
            continue
        through = arrivals.get((request_id, sequence - 1)) if arrivals is not None else None
        found.append(TokenPath(request_id, sequence, tuple(_loop(before, known, through))))
    return sorted(found, key=lambda path: path.links[0].begin)


def prefill_path(steps: Iterable[StepRan], stage_count: int, request_id: str, injected_at: float) -> TokenPath | None:
    """From the prompt's injection to the first token. Parts of a prompt overlap in the stages: the path goes back from
    the end, each time to what came last of what the step needed, its object or its stage."""
    by_place = {(s.stage, s.part): s for s in steps if s.request_id == request_id and s.sequence == 0}
    part = max((part for stage, part in by_place if stage == stage_count - 1), default=None)
    if part is None:
        return None
    links: list[Link] = []
    stage, end = stage_count - 1, by_place[stage_count - 1, part].done
    while True:
        step = by_place.get((stage, part))
        if step is None:
            return None  # its record was lost
        here, upstream = by_place.get((stage, part - 1)), by_place.get((stage - 1, part))
        if here is not None and (upstream is None or here.done > upstream.done):
            begin = min(here.done, end)
            links.append(Link(Place(stage, stage), begin, end))
            part, end = part - 1, begin
            continue
        began = min(step.began, end)
        links.append(Link(Place(stage, stage), began, end))
        source_end = min(upstream.done if upstream is not None else injected_at, began)
        source = stage - 1 if upstream is not None else None
        links.append(Link(Place(source, stage), source_end, began, _hop_parts(upstream, step)))
        if upstream is None:
            return TokenPath(request_id, 0, tuple(reversed(links))) if stage == 0 else None
        stage, end = stage - 1, source_end


def shares(paths: Sequence[TokenPath]) -> list[Share]:
    """What every place takes of the paths' time together, the largest first."""
    spent: dict[Place, list[Link]] = {}
    for path in paths:
        for link in path.links:
            spent.setdefault(link.place, []).append(link)
    whole = sum(path.seconds for path in paths)
    return sorted(
        (_share(place, links, len(paths), whole) for place, links in spent.items()),
        key=lambda share: (-share.mean_s, share.place.is_stage, share.place.source or -1),
    )


def _loop(before: StepRan, chain: Sequence[StepRan], through: float | None) -> Iterable[Link]:
    at, source = before, len(chain) - 1
    now = before.done
    for index, step in enumerate(chain):
        # Clocks of two machines agree only so well: nothing may end before it began.
        began = max(now, step.began)
        if index == 0 and through is not None:
            middle = min(max(now, through), began)
            yield Link(Place(source, None), now, middle)
            yield Link(Place(None, 0), middle, began)
        else:
            yield Link(Place(source, index), now, began, _hop_parts(at, step))
        now = max(began, step.done)
        yield Link(Place(index, index), began, now)
        at, source = step, index


def _hop_parts(left: StepRan | None, came: StepRan) -> tuple[float, float, float, float] | None:
    """The wire is what is left of the hop: the output may be there before its writer knows that it is written."""
    if left is None:
        return None
    hop = max(0.0, came.began - left.done)
    outward = min(hop, max(0.0, left.back - left.done))
    inward = min(hop - outward, max(0.0, came.began - came.arrived))
    write = min(hop - outward - inward, max(0.0, left.written - left.back))
    return outward, write, hop - outward - write - inward, inward


def _share(place: Place, links: Sequence[Link], tokens: int, whole: float) -> Share:
    seconds = [link.seconds for link in links]
    known = [link.parts for link in links if link.parts is not None]
    parts = {name: sum(part[i] for part in known) / len(known) for i, name in enumerate(HOP_PARTS)} if known else None
    total = sum(seconds)
    return Share(
        place=place,
        mean_s=total / tokens,
        p50_s=percentile(seconds, 50),
        p99_s=percentile(seconds, 99),
        share=total / whole if whole > 0 else 0.0,
        count=len(links) / tokens,
        parts=parts,
    )


def _end(stage: int | None) -> str:
    return "orchestrator" if stage is None else str(stage)
