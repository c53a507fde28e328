"""The run as a trace in the Chrome trace event format (JSON object form), which ui.perfetto.dev opens. Pure.

The orchestrator and every stage are a process each. Complete events ("X") are what somebody did, instants ("i") what
happened at a moment, flows ("s", "f") follow a token over the hops. Times are microseconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from ppsmoke.report.analysis import Analysis
from ppsmoke.report.story import Story
from ppsmoke.run_events import MemberSeen, StepRan, TokenArrived
from ppsmoke.wording import member_name

_RUN = 1
_PHASES, _TOKENS, _PATH, _MEMBERS = 1, 2, 3, 4
_STATES, _STEPS = 1, 2


def trace_json(story: Story, analysis: Analysis) -> dict[str, Any]:
    """The whole file's object."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {"run_id": analysis.run_id, "model": analysis.model_id, "began_unix_s": story.began_unix_s},
        "traceEvents": [*_names(analysis), *_orchestrator(story, analysis), *_stages(story, analysis), *_flows(story)],
    }


def _names(a: Analysis) -> Iterator[dict[str, Any]]:
    yield _name("process_name", _RUN, 0, "orchestrator")
    for thread, name in ((_PHASES, "phases"), (_TOKENS, "tokens"), (_PATH, "critical path"), (_MEMBERS, "members")):
        yield _name("thread_name", _RUN, thread, name)
    for stage in range(a.stage_count):
        yield _name("process_name", _pid(stage), 0, f"stage {stage}")
        yield _name("thread_name", _pid(stage), _STATES, "states")
        yield _name("thread_name", _pid(stage), _STEPS, "steps")
        yield _name("thread_name", _pid(stage), _MEMBERS, "members")


def _orchestrator(story: Story, a: Analysis) -> Iterator[dict[str, Any]]:
    for phase in a.phases:
        yield _span(_RUN, _PHASES, "phase", phase.title, phase.begin, phase.end)
    for moment, token in story.of(TokenArrived):
        yield _instant(_RUN, _TOKENS, "token", f"token {token.index}", moment.at, {"token": token.token})
    for path in [*([a.prefill] if a.prefill is not None else []), *a.paths]:
        for link in path.links:
            name = link.place.describe()
            yield _span(_RUN, _PATH, "path", name, link.begin, link.end, {"sequence": path.sequence})
    for moment, event in story.of(MemberSeen):
        pid = _RUN if event.seen_by is None else _pid(event.seen_by)
        yield _instant(
            pid, _MEMBERS, "member", f"{member_name(event.member)} {event.state}", moment.at, {"reason": event.reason}
        )


def _stages(story: Story, a: Analysis) -> Iterator[dict[str, Any]]:
    for span in a.states:
        yield _span(_pid(span.stage), _STATES, "state", span.doing, span.begin, span.end, {"detail": span.detail})
    free: dict[int, float] = {}
    for step in story.steps:
        pid = _pid(step.stage)
        # An object may have come while the stage was busy with the one before; slices of a thread must not overlap.
        arrived = min(step.began, max(step.arrived, free.get(step.stage, 0.0)))
        free[step.stage] = step.written
        about = {"request": step.request_id, "sequence": step.sequence, "part": step.part, "rows": step.seq_len}
        yield _span(pid, _STEPS, "step", f"step {step.sequence}", arrived, step.written, about)
        yield _span(pid, _STEPS, "compute", "compute", step.began, step.done)


def _flows(story: Story) -> Iterator[dict[str, Any]]:
    """From each step to the one that its output began: in the next stage, or in the first one with the next token."""
    by_place = {(s.request_id, s.sequence, s.part, s.stage): s for s in story.steps}
    last = max((step.stage for step in story.steps), default=0)
    numbers = count(1)
    for (request, sequence, part, stage), step in by_place.items():
        after = (request, sequence, part, stage + 1) if stage < last else (request, sequence + 1, 0, 0)
        if stage == last and (request, sequence, part + 1, stage) in by_place:
            continue  # a part of a prompt that yields no token
        target = by_place.get(after)
        if target is not None and target.began >= step.done:
            number = next(numbers)
            yield _flow("s", number, step, step.done)
            yield {**_flow("f", number, target, target.began), "bp": "e"}


def _flow(kind: str, number: int, step: StepRan, at: float) -> dict[str, Any]:
    return {
        "ph": kind,
        "id": number,
        "pid": _pid(step.stage),
        "tid": _STEPS,
        "cat": "hop",
        "name": "hop",
        "ts": _us(at),
    }


def _span(
    pid: int, tid: int, category: str, name: str, begin: float, end: float, about: dict[str, Any] | None = None
) -> dict[str, Any]:
    # Rounded ends, not a rounded length: neighbours must not overlap.
    start = _us(begin)
    event = {"ph": "X", "pid": pid, "tid": tid, "cat": category, "name": name, "ts": start}
    event["dur"] = max(0, _us(end) - start)
    return {**event, "args": about} if about else event


def _instant(pid: int, tid: int, category: str, name: str, at: float, about: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "pid": pid, "tid": tid, "cat": category, "name": name, "ts": _us(at), "args": about}


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _pid(stage: int) -> int:
    return _RUN + 1 + stage


def _us(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
