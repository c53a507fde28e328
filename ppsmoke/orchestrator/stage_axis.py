"""The stages' clocks, and what they recorded by them put on the orchestrator's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from math import isfinite

from ppsmoke.clock_offset import ClockOffset, Estimate, Exchange, one_way
from ppsmoke.errors import PpError
from ppsmoke.messages import ClockProbe, ClockReply, StageRecords
from ppsmoke.orchestrator.news import NotNews
from ppsmoke.orchestrator.options import View
from ppsmoke.run_events import (
    ClockCompared,
    MemberSeen,
    NoteMade,
    RecordsDropped,
    RunEvent,
    Seen,
    StagePace,
    StepRan,
    event_from_json,
)
from ppsmoke.step_rows import RowsRefused, Step, unpack_steps
from ppsmoke.waiting import wait_for

_OFTEN_S, _OFTEN = 1.0, 6  # so that a short run has some from quiet moments too
_EVERY_S = 5.0
_PROBES = 4
_BETWEEN_S = 0.03
_OF_STAGES = (MemberSeen, NoteMade)
"""What a stage tells of in its records; the rest is the orchestrator's to see, or has a message of its own."""


class StageAxis:
    """Of one run. `ask` sends a probe to a stage; what that raises is left to those who watch over the link."""

    def __init__(
        self, view: View, run_id: str, num_stages: int, ask: Callable[[int, ClockProbe], Awaitable[None]]
    ) -> None:
        self._view = view
        self._run_id = run_id
        self._ask = ask
        self._clocks = [ClockOffset() for _ in range(num_stages)]
        self._now = [asyncio.Event() for _ in range(num_stages)]
        self._dropped: dict[int, tuple[int, int]] = {}

    async def probe(self, stage: int) -> None:
        """Compare clocks with a stage: some times at once and when it is ready, then every few seconds, for ever."""
        for number in count():
            self._now[stage].clear()
            for _ in range(_PROBES):
                with suppress(PpError):
                    await self._ask(stage, ClockProbe(run_id=self._run_id, sent=time.monotonic()))
                await asyncio.sleep(_BETWEEN_S)
            with suppress(TimeoutError):
                await wait_for(self._now[stage].wait(), _OFTEN_S if number < _OFTEN else _EVERY_S)

    def stage_ready(self, stage: int) -> None:
        """It computes no more than others do from now on, so its answers come sooner."""
        self._now[stage].set()

    def replied(self, reply: ClockReply) -> None:
        """A stage told its clock. Raises NotNews for stamps that cannot be."""
        stage, back = reply.stage_index, time.monotonic()
        clock = self._clocks[stage]
        before = clock.estimate(reply.replied)
        if not clock.add(Exchange(reply.sent, reply.received, reply.replied, back)):
            raise NotNews("ClockReply with stamps that cannot be")
        found = clock.estimate(reply.replied)
        if found is not None and (before is None or found.within < before.within):
            self._view.happened(ClockCompared(stage, *(_short(found))))

    def take(self, records: StageRecords) -> None:
        """Tell the view of all of them. Raises NotNews for a row that is none."""
        stage = records.stage_index
        clock = self._clocks[stage].estimate(records.sent) or one_way(records.sent, time.monotonic())
        try:
            steps = [_step(stage, step, clock) for step in unpack_steps(records.requests, records.steps)]
        except RowsRefused as refused:
            raise NotNews(f"StageRecords with {refused}") from None
        events = [_event(text) for text in records.events]
        for step in steps:
            self._view.happened(step, Seen(stage, step.arrived, clock.within))
        for event, at in events:
            self._view.happened(event, Seen(stage, clock.ours(at), clock.within))
        pace = _pace(stage, steps)
        if pace is not None:
            self._view.happened(pace)
        dropped = (records.steps_dropped, records.events_dropped)
        if dropped != self._dropped.get(stage, (0, 0)):
            self._dropped[stage] = dropped
            self._view.happened(RecordsDropped(stage, *dropped))


def _step(stage: int, step: Step, clock: Estimate) -> StepRan:
    times = (step.arrived, step.began, step.done, step.back, step.written)
    if not all(map(isfinite, times)):
        raise RowsRefused("a step at no time")
    return StepRan(stage, *step[:4], *map(clock.ours, times))


def _event(text: str) -> tuple[RunEvent, float]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise NotNews("StageRecords with an event that is no JSON") from None
    event = event_from_json(body) if isinstance(body, dict) else None
    at = body.get("at") if isinstance(body, dict) else None
    if not isinstance(event, _OF_STAGES) or type(at) is not float or not isfinite(at):
        raise NotNews("StageRecords with an event that is none, or none of a stage")
    return event, at


def _pace(stage: int, steps: Sequence[StepRan]) -> StagePace | None:
    decoded = [step for step in steps if step.sequence > 0]
    if not decoded:
        return None
    compute = sum(step.done - step.began for step in decoded) / len(decoded)
    whole = sum(step.written - step.arrived for step in decoded) / len(decoded)
    return StagePace(stage, len(decoded), round(compute, 6), round(max(0.0, whole - compute), 6))


def _short(estimate: Estimate) -> tuple[float, float, float]:
    return round(estimate.offset, 6), round(estimate.within, 6), round(estimate.round_trip, 6)
