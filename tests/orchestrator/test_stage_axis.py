"""What stages recorded by clocks of their own comes out on the orchestrator's, and nonsense is refused."""

from __future__ import annotations

import asyncio
import json
import time
from math import nan

import pytest

from ppsmoke.messages import ClockProbe, ClockReply, StageRecords
from ppsmoke.orchestrator import stage_axis
from ppsmoke.orchestrator.news import NotNews
from ppsmoke.orchestrator.stage_axis import StageAxis
from ppsmoke.run_events import (
    ClockCompared,
    EdgeMeasured,
    MemberSeen,
    RecordsDropped,
    RunEnded,
    RunEvent,
    Seen,
    StagePace,
    StepRan,
    event_json,
)
from ppsmoke.step_rows import Step, pack_steps

RUN, NODE, REQUEST = "ab" * 16, "cd" * 32, "ef" * 16
AHEAD = 5000.0
"""What the stage's clock reads more than ours."""


class Watching:
    def __init__(self) -> None:
        self.told: list[tuple[RunEvent, Seen | None]] = []

    def line(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None: ...

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        self.told.append((event, seen))


async def nobody(stage: int, probe: ClockProbe) -> None: ...


def records(now: float, **fields: object) -> StageRecords:
    theirs = now + AHEAD
    requests, rows = pack_steps(
        [Step(REQUEST, 1, 0, 1, theirs - 0.5, theirs - 0.4, theirs - 0.2, theirs - 0.19, theirs - 0.18)]
    )
    event = event_json(MemberSeen(0, 1, "suspect", 2), at=theirs - 0.3, source=1)
    message = StageRecords(
        run_id=RUN,
        stage_index=0,
        node_id=NODE,
        sent=theirs,
        requests=requests,
        steps=rows,
        events=(json.dumps(event),),
    )
    return message.replace(**fields)


def reply(now: float, way_s: float = 0.001) -> ClockReply:
    there = now - way_s + AHEAD
    return ClockReply(run_id=RUN, stage_index=0, node_id=NODE, sent=now - 2 * way_s, received=there, replied=there)


def test_times_of_another_clock_are_shifted_by_what_round_trips_say() -> None:
    watching = Watching()
    axis = StageAxis(watching, RUN, 2, nobody)
    now = time.monotonic()
    axis.replied(reply(now))
    axis.take(records(now))
    kinds = [type(event) for event, _ in watching.told]
    assert kinds == [ClockCompared, StepRan, MemberSeen, StagePace]
    (compared, _), (step, step_seen), (_, member_seen), (pace, _) = watching.told
    assert isinstance(compared, ClockCompared)
    assert isinstance(step, StepRan)
    assert isinstance(pace, StagePace)
    assert step_seen is not None
    assert member_seen is not None
    assert abs(compared.offset_s - AHEAD) <= compared.within_s
    assert step_seen.source == member_seen.source == 0
    assert step_seen.within < 0.5
    assert abs(step.arrived - (now - 0.5)) <= step_seen.within
    assert abs(member_seen.at - (now - 0.3)) <= member_seen.within
    assert step.done - step.began == pytest.approx(0.2)
    assert (pace.steps, pace.compute_s, pace.other_s) == (
        1,
        pytest.approx(0.2, abs=1e-5),
        pytest.approx(0.12, abs=1e-5),
    )


def test_records_before_any_round_trip_are_placed_by_their_arrival() -> None:
    watching = Watching()
    now = time.monotonic()
    StageAxis(watching, RUN, 2, nobody).take(records(now))
    step, seen = watching.told[0]
    assert isinstance(step, StepRan)
    assert seen is not None
    assert seen.within == 1.0
    assert abs(step.arrived - (now - 0.5)) < 1.0


def test_a_stage_that_lost_records_says_so_once() -> None:
    watching = Watching()
    axis = StageAxis(watching, RUN, 2, nobody)
    for _ in range(2):
        axis.take(records(time.monotonic(), steps_dropped=7, events_dropped=1))
    assert [event for event, _ in watching.told if isinstance(event, RecordsDropped)] == [RecordsDropped(0, 7, 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "AAAA"},
        {"steps": "no base64"},
        {"requests": ()},
        {"steps": pack_steps([Step(REQUEST, 1, 0, 1, nan, 1.0, 1.0, 1.0, 1.0)])[1]},
        {"events": ("{",)},
        {"events": ("[]",)},
        {"events": ('{"event": "note_made", "text": "no time"}',)},
        {"events": ('{"event": "note_made", "text": "x", "at": NaN}',)},
        {"events": (f'{{"event": "note_made", "text": "x", "at": 1{"0" * 400}}}',)},
        {"events": (f'{{"event": "note_made", "text": {"[" * 100_000}',)},
        {"events": (json.dumps(event_json(RunEnded(0), at=1.0, source=0)),)},
        {"events": (json.dumps(event_json(EdgeMeasured(0, 1, "relay", 0.1), at=1.0, source=0)),)},
    ],
)
def test_records_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    watching = Watching()
    with pytest.raises(NotNews):
        StageAxis(watching, RUN, 2, nobody).take(records(time.monotonic(), **wrong))
    assert watching.told == []


def test_a_reply_that_cannot_be_is_refused() -> None:
    axis = StageAxis(Watching(), RUN, 2, nobody)
    now = time.monotonic()
    with pytest.raises(NotNews):
        axis.replied(reply(now).replace(sent=now + 60))


def test_a_stage_is_asked_again_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        asked: asyncio.Queue[int] = asyncio.Queue()

        async def ask(stage: int, probe: ClockProbe) -> None:
            assert probe.run_id == RUN
            await asked.put(stage)

        monkeypatch.setattr(stage_axis, "_OFTEN_S", 3600)
        axis = StageAxis(Watching(), RUN, 2, ask)
        probing = asyncio.create_task(axis.probe(1))
        for _ in range(4):
            assert await asyncio.wait_for(asked.get(), 20) == 1
        axis.stage_ready(1)
        assert await asyncio.wait_for(asked.get(), 20) == 1
        probing.cancel()
        await asyncio.wait((probing,))

    asyncio.run(run())
