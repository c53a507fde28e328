"""What is sent again when a connection is lost, on machines alone: every way to lose one, and what must not happen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ppsmoke.edges.machine import ConsumerMachine, ConsumerState, ProducerMachine, ProducerState
from ppsmoke.edges.records import Accept, Ack, Open, Refuse, Resume, Resumed
from ppsmoke.edges.retained import ACK_OBJECTS, Retained
from ppsmoke.errors import EdgeFaulted
from ppsmoke.objects import encode_header
from tests.edges.kit import activation, inbound, outbound
from tests.transport.kit import RUN_ID, id_of

PRODUCER = id_of("stage 0")
RESUME = Resume(RUN_ID, 1, "Activation", 1, 0, 0)


def ready() -> tuple[ProducerMachine, ConsumerMachine]:
    out = ProducerMachine(RUN_ID, outbound("stage 1"), "stage 1")
    into = ConsumerMachine(RUN_ID, inbound("stage 0"), "stage 0")
    accept = into.opened(PRODUCER, out.open())
    assert isinstance(accept, Accept)
    out.answered(accept)
    return out, into


def write(out: ProducerMachine, number: int) -> int:
    obj = activation(number)
    out.write(obj)
    out.retained.add(encode_header(obj), obj.payload)
    return number


def take(into: ConsumerMachine, number: int) -> Ack | None:
    into.took(256)
    into.object(activation(number))
    return into.acknowledgement()


def resume(out: ProducerMachine, into: ConsumerMachine) -> list[int]:
    """The numbers of the objects that are sent again."""
    record = out.resume()
    assert into.resume(PRODUCER, record) is None
    answer = into.resumed()
    out.answered(answer)
    again = out.retained.since(answer.next)
    return list(range(out.retained.next - len(again), out.retained.next))


@pytest.mark.parametrize("written", range(5))
@pytest.mark.parametrize("arrived", range(5))
@pytest.mark.parametrize("acknowledged", range(5))
def test_what_the_consumer_lacks_is_sent_again_and_nothing_else(written: int, arrived: int, acknowledged: int) -> None:
    """A loss before or after a write, with what was written under way, taken, or taken and acknowledged."""
    if not acknowledged <= arrived <= written:
        return
    out, into = ready()
    for number in range(written):
        write(out, number)
    for number in range(arrived):
        take(into, number)
    out.answered(Ack(acknowledged))
    assert out.broken()
    assert into.broken()
    assert resume(out, into) == list(range(arrived, written))
    for number in range(arrived, written):
        take(into, number)
    write(out, written)
    take(into, written)


@pytest.mark.parametrize("seed", range(300))
def test_any_schedule_of_losses_delivers_every_object_once_and_in_order(seed: int) -> None:
    """Writes, deliveries, acknowledgements that arrive, and losses, at random; also while resuming."""
    chance = random.Random(seed)
    out, into = ready()
    on_the_way: list[int] = []
    acknowledgements: list[Ack] = []
    written = 0
    delivered: list[int] = []
    for _ in range(200):
        match chance.choice(["write", "write", "take", "take", "acknowledge", "lose"]):
            case "write":
                on_the_way.append(write(out, written))
                written += 1
            case "take" if on_the_way:
                number = on_the_way.pop(0)
                delivered.append(number)
                if (ack := take(into, number)) is not None:
                    acknowledgements.append(ack)
            case "acknowledge" if acknowledgements:
                out.answered(acknowledgements.pop(0))
            case "lose":
                on_the_way, acknowledgements = [], []
                for _ in range(chance.randrange(3)):  # attempts that are lost as well, with or without an answer
                    record = out.resume()
                    if chance.random() < 0.5:
                        assert into.resume(PRODUCER, record) is None
                        if chance.random() < 0.5:
                            into.resumed()
                on_the_way = resume(out, into)
    while on_the_way:
        number = on_the_way.pop(0)
        take(into, number)
        delivered.append(number)
    assert delivered == list(range(written))
    assert (out.state, into.state) == (ProducerState.READY, ConsumerState.READY)


def test_an_object_that_neither_side_has_any_more_is_a_fault_at_both() -> None:
    out, into = ready()
    for number in range(3):
        write(out, number)
    take(into, 0)
    out.answered(Ack(1))
    out.retained.taken(2)  # as if it had been let go for want of room
    answer = into.resume(PRODUCER, out.resume())
    assert answer == Refuse("object 1 is due, and stage 0 has objects 2 to 3")
    assert into.state is ConsumerState.FAULTED
    with pytest.raises(EdgeFaulted, match="stage 1 refused to resume the edge: object 1 is due"):
        out.answered(answer)


@pytest.mark.parametrize("number", [1, 5])
def test_a_consumer_that_asks_for_what_is_not_at_hand_faults_the_producer(number: int) -> None:
    out, _ = ready()
    for sequence in range(4):
        write(out, sequence)
    out.answered(Ack(2))
    out.resume()
    with pytest.raises(EdgeFaulted, match=f"resumes at object {number}, and objects 2 to 4 are at hand"):
        out.answered(Resumed(number))


def test_an_acknowledgement_of_what_was_never_sent_is_a_fault() -> None:
    out, _ = ready()
    write(out, 0)
    with pytest.raises(EdgeFaulted, match="acknowledges object 2, which was never sent"):
        out.answered(Ack(2))


@pytest.mark.parametrize(
    ("peer", "record", "reason"),
    [
        ("stage 0", replace(RESUME, run_id="99" * 16), "the run id is not the active one"),
        ("stage 0", replace(RESUME, edge_id=2), "this is edge 1, not 2"),
        ("stage 2", RESUME, "the planned producer of edge 1 is stage 0"),
        ("stage 0", replace(RESUME, kind="TokenIn"), "edge 1 is Activation, not TokenIn"),
        ("stage 0", replace(RESUME, attempt=0), "attempt 0 to resume edge 1 was newer"),
    ],
)
def test_a_resume_that_is_not_the_edges_is_refused_and_changes_nothing(peer: str, record: Resume, reason: str) -> None:
    _, into = ready()
    assert into.resume(id_of(peer), record) == Refuse(reason)
    assert into.state is ConsumerState.READY


def test_an_attempt_that_another_one_has_overtaken_is_refused() -> None:
    out, into = ready()
    first, second = out.resume(), out.resume()
    assert into.resume(PRODUCER, second) is None
    into.resumed()
    assert into.resume(PRODUCER, first) == Refuse("attempt 2 to resume edge 1 was newer")


@pytest.mark.parametrize("state", ["ended", "closed", "faulted"])
def test_an_edge_that_is_not_open_cannot_be_resumed(state: str) -> None:
    into = ConsumerMachine(RUN_ID, inbound("stage 0"), "stage 0")
    into.opened(PRODUCER, Open(RUN_ID, 1, "Activation"))
    if state == "ended":
        into.state = ConsumerState.ENDED
    if state == "closed":
        into.close("stopped")
    if state == "faulted":
        into.fail("it broke")
    assert into.resume(PRODUCER, RESUME) == Refuse(f"edge 1 cannot be resumed (it is {state})")


@pytest.mark.parametrize("arrived", [False, True])
def test_an_edge_whose_opening_was_lost_is_resumed_from_its_first_object(arrived: bool) -> None:
    """The consumer may have accepted it, and that may have been lost."""
    out = ProducerMachine(RUN_ID, outbound("stage 1"), "stage 1")
    into = ConsumerMachine(RUN_ID, inbound("stage 0"), "stage 0")
    first = out.open()
    if arrived:
        assert into.opened(PRODUCER, first) == Accept()
    assert resume(out, into) == []
    assert (out.state, into.state) == (ProducerState.READY, ConsumerState.READY)
    assert isinstance(into.opened(PRODUCER, first), Refuse), "should it still come"
    write(out, 0)
    take(into, 0)


def test_acknowledgements_come_every_few_objects_or_bytes() -> None:
    _, into = ready()
    acks = [take(into, number) for number in range(2 * ACK_OBJECTS)]
    assert [ack.next for ack in acks if ack] == [ACK_OBJECTS, 2 * ACK_OBJECTS]
    into.took(1 << 20)
    assert into.acknowledgement() == Ack(2 * ACK_OBJECTS + 1)


def test_what_is_kept_is_bounded() -> None:
    kept = Retained(max_bytes=100)
    for _ in range(10):
        kept.add(b"h", bytes(40))
    assert (kept.first, kept.next, kept.nbytes) == (8, 10, 80)
    assert kept.since(9) == [(b"h", bytes(40))]
    kept.add(b"h", bytes(400))  # one object that is bigger than all that may be kept can still be resumed
    assert (kept.first, kept.next) == (10, 11)
