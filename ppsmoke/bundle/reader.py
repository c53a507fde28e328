"""Reads a run's directory back, whole or not: a file that is missing or cut off is no error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from ppsmoke.bundle.names import CALLS, ENVIRONMENT, EVENTS, OFFERS, PLAN, RENTAL, RUN, SPANS
from ppsmoke.errors import UsageError
from ppsmoke.run_events import RunEvent, StepRan, TokenArrived, event_from_json

_E = TypeVar("_E", bound=RunEvent)
_FAR = 2**53  # further than any time, count or size goes
_NO_JSON = (ValueError, RecursionError)  # the latter where brackets are nested a thousand deep


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its time on the run's axis, and who saw it: a stage, or None for the orchestrator. `within`: how
    far off the time may be."""

    at: float
    source: int | None
    event: RunEvent
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a stage, its times on the run's axis; `within` as Recorded has it."""

    step: StepRan
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a run left. A file that is not there is None or empty. `events` are sorted by time, `spans` by arrival;
    `skipped` counts the lines of both that could not be read. `missing`: files that are not there, and
    that such a run writes."""

    directory: Path
    environment: dict[str, Any] | None
    plan: dict[str, Any] | None
    run: dict[str, Any] | None
    offers: Any
    rental: dict[str, Any] | None
    events: tuple[Recorded, ...] = ()
    spans: tuple[Span, ...] = ()
    skipped: int = 0
    stage_logs: dict[int, Path] = field(default_factory=dict)
    instance_logs: dict[int, Path] = field(default_factory=dict)
    vast_calls: Path | None = None
    missing: tuple[str, ...] = ()

    def of_kind(self, kind: type[_E]) -> Iterator[tuple[Recorded, _E]]:
        """The events of one class, in order of time."""
        for recorded in self.events:
            if isinstance(recorded.event, kind):
                yield recorded, recorded.event


def read_bundle(directory: Path | str) -> Bundle:
    """Raises UsageError where nothing of a run lies."""
    directory = Path(directory)
    names = (ENVIRONMENT, EVENTS, RUN, PLAN)
    if not any((directory / name).is_file() for name in names):
        why = "there is no such directory"
        if directory.exists():
            why = f"none of {', '.join(names)} is in it" if directory.is_dir() else "it is a file"
        raise UsageError(
            f"the path {directory} is no run's directory: {why}",
            remedy="Give what a run printed as its run directory, or nothing for that of the newest run.",
        )
    events = [_recorded(body) for body in _lines(directory / EVENTS)]
    spans = [_span(body) for body in _lines(directory / SPANS)]
    read = [event for event in events if event is not None]
    timed = [span for span in spans if span is not None]
    calls, run = directory / CALLS, _object(directory / RUN)
    had_tokens = any(isinstance(event.event, TokenArrived) for event in read) or bool((run or {}).get("tokens"))
    due = (ENVIRONMENT, EVENTS, *((SPANS,) if had_tokens else ()))
    return Bundle(
        directory=directory,
        environment=_object(directory / ENVIRONMENT),
        plan=_object(directory / PLAN),
        run=run,
        offers=_json(directory / OFFERS),
        rental=_object(directory / RENTAL),
        events=tuple(sorted(read, key=lambda recorded: recorded.at)),
        spans=tuple(sorted(timed, key=lambda span: span.step.arrived)),
        skipped=len(events) - len(read) + len(spans) - len(timed),
        stage_logs=_numbered(directory, "stage"),
        instance_logs=_numbered(directory, "instance"),
        vast_calls=calls if calls.is_file() else None,
        missing=tuple(name for name in due if not (directory / name).is_file()),
    )


def _recorded(body: dict[str, Any]) -> Recorded | None:
    event, at, source = event_from_json(body), body.get("at"), body.get("source")
    if event is None or not _is_number(at) or not (source is None or type(source) is int):
        return None
    return Recorded(float(at), source, event, _within(body))


def _span(body: dict[str, Any]) -> Span | None:
    step = event_from_json({**body, "event": "step_ran"})
    if not isinstance(step, StepRan):
        return None
    times = (step.arrived, step.began, step.done, step.back, step.written)
    return Span(step, _within(body)) if all(_is_number(value) for value in times) else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, a line each; an empty one for a line that is none."""
    if not path.is_file():  # a pipe of that name would keep its reader waiting for ever
        return
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        for line in file:
            if line.strip():
                yield _parsed(line)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        body = _value(line)
    except _NO_JSON:
        return {}
    return body if isinstance(body, dict) else {}


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return _value(path.read_bytes())
    except (OSError, *_NO_JSON):
        return None


def _value(text: bytes) -> Any:
    """What the JSON says, with None for every number that none of ours can be: arithmetic would choke on it."""
    return json.loads(text, parse_constant=_nothing, parse_float=_float, parse_int=_int)


def _nothing(_name: str) -> None:
    return None


def _float(digits: str) -> float | None:
    value = float(digits)
    return value if abs(value) < _FAR else None


def _int(digits: str) -> int | None:
    value = int(digits) if len(digits) < 20 else _FAR
    return value if abs(value) < _FAR else None


def _object(path: Path) -> dict[str, Any] | None:
    body = _json(path)
    return body if isinstance(body, dict) else None


def _numbered(directory: Path, kind: str) -> dict[int, Path]:
    """`stage-3.log` by 3."""
    found = {}
    for path in directory.glob(f"{kind}-*.log"):
        match = re.fullmatch(rf"{kind}-(\d+)\.log", path.name)
        if match and path.is_file():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def _within(body: dict[str, Any]) -> float:
    within = body.get("within", 0.0)
    return float(within) if _is_number(within) else 0.0


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
