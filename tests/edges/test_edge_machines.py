"""Every event in every state of both ends of an edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ppsmoke.edges.machine import ConsumerMachine, ConsumerState, ProducerMachine, ProducerState
from ppsmoke.edges.order import ObjectOrder
from ppsmoke.edges.records import (
    Accept,
    Ack,
    Closed,
    Ended,
    Fault,
    Finish,
    Lane,
    Open,
    Record,
    RecordMalformed,
    Refuse,
    Resume,
    Resumed,
    decode,
    encode,
)
from ppsmoke.errors import EdgeFaulted
from ppsmoke.objects import StreamObject
from tests.edges.kit import HIDDEN, REQUEST, activation, inbound, outbound
from tests.transport.kit import RUN_ID, id_of

OTHER = "99" * 16
OPEN = Open(RUN_ID, 1, "Activation")


def producer(state: ProducerState) -> ProducerMachine:
    machine = ProducerMachine(RUN_ID, outbound("stage 1"), "stage 1")
    if state is ProducerState.FAULTED:
        machine.fail("the first fault")
    elif state is not ProducerState.IDLE:
        machine.open()
        if state is not ProducerState.OPENING:
            machine.answered(Accept())
        if state in (ProducerState.FINISHING, ProducerState.FINISHED):
            machine.finish()
        if state is ProducerState.FINISHED:
            machine.answered(Ended())
        if state is ProducerState.CLOSED:
            machine.answered(Closed("stopped"))
        if state is ProducerState.RESUMING:
            assert machine.broken()
    assert machine.state is state
    return machine


def consumer(state: ConsumerState) -> ConsumerMachine:
    machine = ConsumerMachine(RUN_ID, inbound("stage 0"), "stage 0")
    if state is ConsumerState.FAULTED:
        machine.fail("the first fault")
    elif state is ConsumerState.CLOSED:
        machine.close("stopped")
    elif state is not ConsumerState.WAITING:
        assert machine.opened(id_of("stage 0"), OPEN) == Accept()
        if state is ConsumerState.ENDED:
            machine.record(Finish())
        if state is ConsumerState.RESUMING:
            assert machine.broken()
    assert machine.state is state
    return machine


P, C = ProducerState, ConsumerState
PRODUCER_EVENTS: dict[str, Callable[[ProducerMachine], object]] = {
    "open": lambda machine: machine.open(),
    "accepted": lambda machine: machine.answered(Accept()),
    "refused": lambda machine: machine.answered(Refuse("no")),
    "ended": lambda machine: machine.answered(Ended()),
    "closed": lambda machine: machine.answered(Closed("stopped")),
    "fault": lambda machine: machine.answered(Fault("bad object")),
    "nonsense": lambda machine: machine.answered(Open(RUN_ID, 1, "Activation")),
    "write": lambda machine: machine.write(activation(0)),
    "finish": lambda machine: machine.finish(),
    "resume": lambda machine: machine.resume(),
    "resumed": lambda machine: machine.answered(Resumed(0)),
    "acknowledged": lambda machine: machine.answered(Ack(0)),
}
PRODUCER_LEGAL = {
    (P.IDLE, "open"): P.OPENING,
    (P.OPENING, "accepted"): P.READY,
    (P.OPENING, "resume"): P.RESUMING,
    (P.READY, "write"): P.READY,
    (P.READY, "resume"): P.RESUMING,
    (P.READY, "acknowledged"): P.READY,
    (P.RESUMING, "write"): P.RESUMING,
    (P.RESUMING, "resume"): P.RESUMING,
    (P.RESUMING, "resumed"): P.READY,
    (P.RESUMING, "acknowledged"): P.RESUMING,
    (P.FINISHING, "acknowledged"): P.FINISHING,
    (P.FINISHED, "acknowledged"): P.FINISHED,
    (P.READY, "finish"): P.FINISHING,
    (P.READY, "closed"): P.CLOSED,
    (P.FINISHING, "ended"): P.FINISHED,
    (P.FINISHING, "closed"): P.CLOSED,
}
CONSUMER_EVENTS: dict[str, Callable[[ConsumerMachine], object]] = {
    "object": lambda machine: machine.object(activation(0)),
    "finish": lambda machine: machine.record(Finish()),
    "nonsense": lambda machine: machine.record(Open(RUN_ID, 1, "Activation")),
}
CONSUMER_LEGAL = {
    (C.READY, "object"): C.READY,
    (C.READY, "finish"): C.ENDED,
    (C.RESUMING, "object"): C.RESUMING,  # it had been taken before
}


@pytest.mark.parametrize("state", list(P))
@pytest.mark.parametrize("event", list(PRODUCER_EVENTS))
def test_producer(state: ProducerState, event: str) -> None:
    machine = producer(state)
    wanted = PRODUCER_LEGAL.get((state, event))
    if wanted is not None:
        PRODUCER_EVENTS[event](machine)
        assert machine.state is wanted
        return
    before = machine.fault
    with pytest.raises(EdgeFaulted) as caught:
        PRODUCER_EVENTS[event](machine)
    assert machine.state is (P.CLOSED if state is P.CLOSED else P.FAULTED)
    if before is not None:
        assert caught.value is before, "the first reason stays"
    assert machine.fault is caught.value
    assert caught.value.what.startswith("edge 1 (Activation to stage 1): ")
    assert caught.value.peer == "stage 1"


@pytest.mark.parametrize("state", list(C))
@pytest.mark.parametrize("event", list(CONSUMER_EVENTS))
def test_consumer(state: ConsumerState, event: str) -> None:
    machine = consumer(state)
    wanted = CONSUMER_LEGAL.get((state, event))
    if wanted is not None:
        CONSUMER_EVENTS[event](machine)
        assert machine.state is wanted
        return
    before = machine.fault
    with pytest.raises(EdgeFaulted) as caught:
        CONSUMER_EVENTS[event](machine)
    assert machine.state is (C.CLOSED if state is C.CLOSED else C.FAULTED)
    if before is not None:
        assert caught.value is before
    assert caught.value.what.startswith("edge 1 (Activation from stage 0): ")


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (P.IDLE, P.FAULTED),
        (P.OPENING, P.FAULTED),
        (P.READY, P.FAULTED),
        (P.RESUMING, P.FAULTED),
        (P.FINISHING, P.FAULTED),
        (P.FINISHED, P.FINISHED),
        (P.CLOSED, P.CLOSED),
        (P.FAULTED, P.FAULTED),
    ],
)
def test_a_lost_stream_faults_a_producer_unless_all_was_delivered_or_unwanted(
    state: ProducerState, after: ProducerState
) -> None:
    machine = producer(state)
    machine.lost("the connection closed")
    assert machine.state is after


@pytest.mark.parametrize("how", ["stream_ended", "lost"])
@pytest.mark.parametrize(
    ("state", "after"),
    [
        (C.WAITING, C.FAULTED),
        (C.READY, C.FAULTED),
        (C.RESUMING, C.FAULTED),
        (C.ENDED, C.ENDED),
        (C.CLOSED, C.CLOSED),
        (C.FAULTED, C.FAULTED),
    ],
)
def test_a_stream_without_its_finish_faults_a_consumer(how: str, state: ConsumerState, after: ConsumerState) -> None:
    machine = consumer(state)
    if how == "lost":
        machine.lost("the connection closed")
    else:
        machine.stream_ended()
    assert machine.state is after


@pytest.mark.parametrize(
    ("peer", "record", "reason"),
    [
        ("stage 0", replace(OPEN, run_id=OTHER), "the run id is not the active one"),
        ("stage 0", replace(OPEN, edge_id=2), "this is edge 1, not 2"),
        ("stage 2", OPEN, "the planned producer of edge 1 is stage 0"),
        ("stage 0", replace(OPEN, kind="TokenIn"), "edge 1 is Activation, not TokenIn"),
    ],
)
def test_a_stream_that_is_not_planned_is_refused_and_leaves_the_edge_as_it_was(
    peer: str, record: Open, reason: str
) -> None:
    for state in C:
        machine = consumer(state)
        assert machine.opened(id_of(peer), record) == Refuse(reason)
        assert machine.state is state


def test_a_second_stream_is_refused_in_every_state_but_the_first() -> None:
    for state in C:
        machine = consumer(state)
        answer = machine.opened(id_of("stage 0"), OPEN)
        assert answer == (
            Accept() if state is C.WAITING else Refuse(f"edge 1 has had its stream (it is {state.value})")
        )
        if state is not C.WAITING:
            assert machine.state is state


BAD_OBJECTS = [
    (replace(activation(0), edge_id=2), "an object of edge 2 came on edge 1"),
    (replace(activation(0), payload=bytes(255)), "has 255 bytes where 1 positions take 256"),
    (replace(activation(0), seq_len=0, payload=b""), "has 0 bytes where 0 positions take 0"),
    (activation(0, rows=5000), f"has 1280000 bytes, over the edge's limit of {HIDDEN.max_extent}"),
    (activation(1), "must start with sequence 0"),
    (replace(activation(0), part=1), "must start with sequence 0"),
]


@pytest.mark.parametrize(("obj", "reason"), BAD_OBJECTS)
def test_an_object_that_does_not_fit_the_edge_faults_either_end(obj: StreamObject, reason: str) -> None:
    out, into = producer(P.READY), consumer(C.READY)
    with pytest.raises(EdgeFaulted, match=reason):
        out.write(obj)
    with pytest.raises(EdgeFaulted, match=reason):
        into.object(obj)
    assert (out.state, into.state) == (P.FAULTED, C.FAULTED)


def at(sequence: int, part: int = 0, *, last: bool = True, request: str = REQUEST, done: bool = False) -> StreamObject:
    return replace(
        activation(sequence, request=request), part=part, last_part=last, finish_reason="eos" if done else None
    )


@pytest.mark.parametrize(
    "objects",
    [
        [at(0), at(1), at(2)],
        [at(0, 0, last=False), at(0, 1, last=False), at(0, 2), at(1)],
        [at(0), at(1, 0, last=False), at(1, 1), at(2, done=True), at(0, request=OTHER), at(1, request=OTHER)],
        [at(0), at(0, request=OTHER)],
    ],
)
def test_orders_that_are_right(objects: list[StreamObject]) -> None:
    order = ObjectOrder()
    assert [order.problem(obj) for obj in objects] == [None] * len(objects)


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ([at(0), at(0)], "came where sequence 1 part 0 was due"),
        ([at(0), at(2)], "came where sequence 1 part 0 was due"),
        ([at(0), at(1), at(0)], "came where sequence 2 part 0 was due"),
        ([at(0, last=False), at(1)], "came where sequence 0 part 1 was due"),
        ([at(0, last=False), at(0, 2)], "came where sequence 0 part 1 was due"),
        ([at(0), at(0, 1)], "came where sequence 1 part 0 was due"),
        ([at(0), at(1, 1)], "came where sequence 1 part 0 was due"),
        ([at(0, last=False), at(0, request=OTHER)], "in the middle of a sequence of request cdcdcdcd"),
        ([at(0), at(1, request=OTHER)], "must start with sequence 0"),
        ([at(0), at(1, done=True), at(2)], "came after that request was done"),
        ([at(0, last=False, done=True)], "without being the last part"),
    ],
)
def test_orders_that_are_wrong(objects: list[StreamObject], problem: str) -> None:
    order = ObjectOrder()
    for obj in objects[:-1]:
        assert order.problem(obj) is None
    found = order.problem(objects[-1])
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    "record",
    [
        OPEN, Resume(RUN_ID, 1, "Activation", 1, 3, 9, 4), Lane(RUN_ID, 1, 0, 3), Accept(), Resumed(5), Refuse("no"),
        Ack(7), Finish(), Ended(), Fault("bad"), Closed("stopped"),
    ],
)  # fmt: skip
def test_records_survive_the_wire(record: Record) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "frame", [b"", b"\xff", b"[]", b"{}", b'{"edge":"Open"}', b'{"edge":"Open","run_id":1,"edge_id":1,"kind":"x"}']
)
def test_what_is_no_record_is_malformed(frame: bytes) -> None:
    with pytest.raises(RecordMalformed):
        decode(frame)


def test_a_long_reason_is_cut() -> None:
    assert decode(encode(Fault("x" * 10_000))) == Fault("x" * 500)
