"""A stage's records are bounded in memory and in a message, in order, and what is left out is counted."""

from __future__ import annotations

import json

from ppsmoke.messages import StageRecords, decode_message, encode_message
from ppsmoke.run_events import NoteMade, event_from_json
from ppsmoke.stage import recording
from ppsmoke.stage.recording import Recording
from ppsmoke.step_rows import Step, unpack_steps
from ppsmoke.transport.link import MAX_CONTROL_BYTES

RUN, NODE, REQUEST = "ab" * 16, "cd" * 32, "ef" * 16


def step(sequence: int, request: str = REQUEST) -> Step:
    return Step(request, sequence, 0, 1, 1e6 + sequence, *(1e6 + sequence + tenth / 10 for tenth in (1, 2, 3, 4)))


def taken(record: Recording) -> list[StageRecords]:
    found = []
    while (message := record.take(run_id=RUN, node_id=NODE, now=5.0)) is not None:
        found.append(message)
    return found


def test_steps_and_events_travel_in_order() -> None:
    record = Recording(2)
    record.step(step(0))
    record.step(step(1, "12" * 16))
    record.step(step(2))
    record.event("note_made", {"text": "x", "level": "detail"}, 7.5)
    (message,) = taken(record)
    read = decode_message(json.loads(json.dumps(encode_message(message))))
    assert isinstance(read, StageRecords)
    assert (read.stage_index, read.sent, read.requests) == (2, 5.0, (REQUEST, "12" * 16))
    assert unpack_steps(read.requests, read.steps) == [step(0), step(1, "12" * 16), step(2)]
    body = json.loads(read.events[0])
    assert (body["at"], body["source"]) == (7.5, 2)
    assert event_from_json(body) == NoteMade("x", "detail")
    assert taken(record) == []


def test_what_waits_is_bounded_and_the_rest_is_counted() -> None:
    record = Recording(0)
    for sequence in range(recording.MOST_STEPS + 160):
        record.step(step(sequence))
    for _ in range(recording.MOST_EVENTS + 3):
        record.event("note_made", {"text": "x" * 100}, 1.0)
    record.event("note_made", {"text": "x" * 10_000}, 1.0)
    messages = taken(record)
    assert sum(len(unpack_steps(message.requests, message.steps)) for message in messages) == recording.MOST_STEPS
    assert sum(len(message.events) for message in messages) == recording.MOST_EVENTS
    assert (messages[-1].steps_dropped, messages[-1].events_dropped) == (160, 4)
    for message in messages:
        assert len(json.dumps(encode_message(message))) < MAX_CONTROL_BYTES / 2


def test_a_long_run_goes_on_with_fewer_records() -> None:
    record = Recording(0)
    for sequence in range(recording.MOST_STEPS):
        record.step(step(sequence))
    taken(record)
    for sequence in range(10 * recording.THINNED):
        record.step(step(sequence))
    (message,) = taken(record)
    assert (len(unpack_steps(message.requests, message.steps)), message.steps_dropped) == (
        10,
        10 * recording.THINNED - 10,
    )
