"""The two ends of an edge as state machines. Pure.

Every method is an event. What may not happen in a state raises EdgeFaulted and leaves the machine `FAULTED`; from then
on every event raises that first fault again. A refusal is different: it answers a stream that is not this edge's, and
the edge goes on waiting for the right one. `CLOSED` is an end without a fault: one of the two sides was told to stop.

A connection that is lost need not be the edge's end. Both sides are then `RESUMING`: the producer keeps what the
consumer has not acknowledged, opens another stream with `Resume`, and the consumer, which counts what it takes, says
which object is due. What it has is not sent again; what neither side has any more is a fault.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from ppsmoke.edges.order import ObjectOrder
from ppsmoke.edges.records import Accept, Ack, Closed, Ended, Fault, Finish, Open, Record, Refuse, Resume, Resumed
from ppsmoke.edges.retained import ACK_BYTES, ACK_OBJECTS, Retained
from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import InboundEdgeProvision, ObjectSpec, OutboundEdgeProvision
from ppsmoke.objects import StreamObject


class ProducerState(StrEnum):
    IDLE = "idle"
    OPENING = "opening"
    READY = "ready"
    RESUMING = "resuming"
    FINISHING = "finishing"
    FINISHED = "finished"
    CLOSED = "closed"
    FAULTED = "faulted"


class ConsumerState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RESUMING = "resuming"
    ENDED = "ended"
    CLOSED = "closed"
    FAULTED = "faulted"


class _EdgeEnd:
    """What both ends share: the first fault, and how it is worded."""

    def __init__(self, label: str, peer_name: str) -> None:
        self._label = label
        self.peer_name = peer_name
        self.fault: EdgeFaulted | None = None

    @property
    def title(self) -> str:
        """What people call the edge: "edge 2 (Activation from stage 1)"."""
        return f"{self._label} {self.peer_name})"

    def error(self, reason: str, phase: str = "edge") -> EdgeFaulted:
        return EdgeFaulted(f"{self.title}: {reason}", peer=self.peer_name, phase=phase)

    def fail(self, reason: str | EdgeFaulted) -> EdgeFaulted:
        """Fault the edge; the first reason stays. Returns the error that holds."""
        if self.fault is None:
            self.fault = self.error(reason) if isinstance(reason, str) else reason
            self._set_faulted()
        return self.fault

    def close(self, reason: str) -> EdgeFaulted:
        """This side was told to stop. Returns the error that later events raise."""
        if self.fault is None:
            self.fault = self.error(f"it was closed: {reason}")
            self._set_closed()
        return self.fault

    def _set_faulted(self) -> None:
        raise NotImplementedError

    def _set_closed(self) -> None:
        raise NotImplementedError

    def _raise(self, reason: str) -> NoReturn:
        raise self.fail(reason)

    def _check_alive(self) -> None:
        if self.fault is not None:
            raise self.fault


class ProducerMachine(_EdgeEnd):
    def __init__(self, run_id: str, provision: OutboundEdgeProvision, consumer_name: str) -> None:
        super().__init__(f"edge {provision.edge_id} ({provision.kind.value} to", consumer_name)
        self.state = ProducerState.IDLE
        self._run_id = run_id
        self._provision = provision
        self._order = ObjectOrder()
        self._attempt = 0
        self.retained = Retained()

    def open(self, lanes: int = 1) -> Open:
        """The first record of the edge's stream."""
        self._check_alive()
        if self.state is not ProducerState.IDLE:
            self._raise("it was opened twice")
        self.state = ProducerState.OPENING
        return Open(self._run_id, self._provision.edge_id, self._provision.kind.value, lanes)

    def broken(self) -> bool:
        """The connection is lost. Whether the edge waits for another one; else it is `lost`."""
        if self.state in (ProducerState.OPENING, ProducerState.READY):
            self.state = ProducerState.RESUMING
        return self.state is ProducerState.RESUMING

    def resume(self, lanes: int = 1) -> Resume:
        """The first record of another stream. May come again, when that one is lost too."""
        self._check_alive()
        if not self.broken():
            self._raise(f"it was resumed while it was {self.state}")
        self._attempt += 1
        edge, kept = self._provision, self.retained
        return Resume(self._run_id, edge.edge_id, edge.kind.value, self._attempt, kept.first, kept.next, lanes)

    @property
    def attempt(self) -> int:
        """Of the newest Resume; 0 before the first."""
        return self._attempt

    def answered(self, record: Record) -> None:
        """What the consumer said."""
        self._check_alive()
        match record:
            case Accept() if self.state is ProducerState.OPENING:
                self.state = ProducerState.READY
            case Refuse(reason) if self.state in (ProducerState.OPENING, ProducerState.RESUMING):
                what = "the edge" if self.state is ProducerState.OPENING else "to resume the edge"
                self._raise(f"{self.peer_name} refused {what}: {reason}")
            case Resumed(number) if self.state is ProducerState.RESUMING:
                if number < self.retained.first or not self.retained.taken(number):
                    sent = f"objects {self.retained.first} to {self.retained.next} are at hand"
                    self._raise(f"{self.peer_name} resumes at object {number}, and {sent}")
                self.state = ProducerState.READY
            case Ack(number) if self.state not in (ProducerState.IDLE, ProducerState.OPENING):
                if not self.retained.taken(number):
                    self._raise(f"{self.peer_name} acknowledges object {number}, which was never sent")
            case Ended() if self.state is ProducerState.FINISHING:
                self.state = ProducerState.FINISHED
            case Closed(reason) if self.state in (ProducerState.READY, ProducerState.FINISHING):
                self.fault = self.error(f"{self.peer_name} closed it: {reason}")
                self.state = ProducerState.CLOSED
            case Fault(reason):
                self._raise(f"{self.peer_name} reports: {reason}")
            case _:
                self._raise(f"{self.peer_name} sent {type(record).__name__} while the edge was {self.state}")

    def write(self, obj: StreamObject) -> None:
        """An object is to go out now."""
        self._check_alive()
        if self.state not in (ProducerState.READY, ProducerState.RESUMING):
            self._raise(f"an object was written while the edge was {self.state}")
        if problem := object_problem(obj, self._provision.edge_id, self._provision.object_spec):
            self._raise(problem)
        if problem := self._order.problem(obj):
            self._raise(problem)

    def finish(self) -> Finish:
        """No further object: the record that says so."""
        self._check_alive()
        if self.state is not ProducerState.READY:
            self._raise(f"it was finished while it was {self.state}")
        self.state = ProducerState.FINISHING
        return Finish()

    def lost(self, reason: str) -> None:
        """The stream broke; no fault when everything was delivered, or nobody wants it any more."""
        if self.state is not ProducerState.FINISHED:
            self.fail(reason)

    def _set_faulted(self) -> None:
        self.state = ProducerState.FAULTED

    def _set_closed(self) -> None:
        if self.state is not ProducerState.FINISHED:
            self.state = ProducerState.CLOSED


class ConsumerMachine(_EdgeEnd):
    def __init__(self, run_id: str, provision: InboundEdgeProvision, producer_name: str) -> None:
        super().__init__(f"edge {provision.edge_id} ({provision.kind.value} from", producer_name)
        self.run_id = run_id
        self.state = ConsumerState.WAITING
        self._provision = provision
        self._order = ObjectOrder()
        self._attempt = 0
        self._acknowledged = 0
        self._unacknowledged_bytes = 0
        self.taken = 0

    def opened(self, peer_id: str, record: Open) -> Accept | Refuse:
        """A peer opened a stream for this edge id."""
        if refuse := self._not_this_edge(peer_id, record):
            return refuse
        if self.state is not ConsumerState.WAITING:
            return Refuse(f"edge {record.edge_id} has had its stream (it is {self.state})")
        self.state = ConsumerState.READY
        return Accept()

    def broken(self) -> bool:
        """The connection is lost. Whether the edge waits for another one; else it is `lost`."""
        if self.state is ConsumerState.READY:
            self.state = ConsumerState.RESUMING
        return self.state is ConsumerState.RESUMING

    def resume(self, peer_id: str, record: Resume) -> Refuse | None:
        """A peer opened another stream for this edge: None when it takes the place of the one before.

        That one, if it ever came, must then be read no more, and `resumed` says what is due.
        """
        if refuse := self._not_this_edge(peer_id, record):
            return refuse
        if record.attempt <= self._attempt:
            return Refuse(f"attempt {self._attempt} to resume edge {record.edge_id} was newer")
        if self.state is ConsumerState.WAITING:
            self.state = ConsumerState.RESUMING
        if not self.broken():
            return Refuse(f"edge {record.edge_id} cannot be resumed (it is {self.state})")
        self._attempt = record.attempt
        if not record.first <= self.taken <= record.next:
            what = f"object {self.taken} is due, and {self.peer_name} has objects {record.first} to {record.next}"
            self.fail(what)
            return Refuse(what)
        return None

    def resumed(self) -> Resumed:
        """The stream before is read no more: the answer on the new one."""
        self._check_alive()
        self.state = ConsumerState.READY
        self._acknowledged, self._unacknowledged_bytes = self.taken, 0
        return Resumed(self.taken)

    @property
    def attempt(self) -> int:
        """Of the newest Resume that was accepted; 0 before any."""
        return self._attempt

    def took(self, size: int) -> None:
        """One more object record, of `size` bytes, has come off the stream."""
        self.taken += 1
        self._unacknowledged_bytes += size

    def acknowledgement(self) -> Ack | None:
        """What to tell the producer now, if anything."""
        if self.taken - self._acknowledged < ACK_OBJECTS and self._unacknowledged_bytes < ACK_BYTES:
            return None
        self._acknowledged, self._unacknowledged_bytes = self.taken, 0
        return Ack(self.taken)

    def _not_this_edge(self, peer_id: str, record: Open | Resume) -> Refuse | None:
        if record.run_id != self.run_id:
            return Refuse("the run id is not the active one")
        if record.edge_id != self._provision.edge_id:
            return Refuse(f"this is edge {self._provision.edge_id}, not {record.edge_id}")
        if peer_id != self._provision.producer_node_id:
            return Refuse(f"the planned producer of edge {record.edge_id} is {self.peer_name}")
        if record.kind != self._provision.kind.value:
            return Refuse(f"edge {record.edge_id} is {self._provision.kind.value}, not {record.kind[:40]}")
        return None

    def object(self, obj: StreamObject) -> None:
        """An object that came off the edge's stream is judged."""
        self._check_alive()
        if self.state not in (ConsumerState.READY, ConsumerState.RESUMING):
            self._raise(f"an object came while the edge was {self.state}")
        if problem := object_problem(obj, self._provision.edge_id, self._provision.object_spec):
            self._raise(problem)
        if problem := self._order.problem(obj):
            self._raise(problem)

    def record(self, record: Record) -> Ended:
        """A record arrived where an object could have: only `Finish` may."""
        self._check_alive()
        if not isinstance(record, Finish) or self.state is not ConsumerState.READY:
            self._raise(f"{self.peer_name} sent {type(record).__name__} while the edge was {self.state}")
        self.state = ConsumerState.ENDED
        return Ended()

    def stream_ended(self) -> None:
        """The stream ended; a fault unless its finish came before."""
        if self.state is not ConsumerState.ENDED:
            self.fail(f"{self.peer_name} ended the stream without finishing")

    def lost(self, reason: str) -> None:
        """The stream broke; no fault when its finish came before."""
        if self.state is not ConsumerState.ENDED:
            self.fail(reason)

    def _set_faulted(self) -> None:
        self.state = ConsumerState.FAULTED

    def _set_closed(self) -> None:
        if self.state is not ConsumerState.ENDED:
            self.state = ConsumerState.CLOSED


def object_problem(obj: StreamObject, edge_id: int, spec: ObjectSpec) -> str | None:
    """Why `obj` does not fit the edge, None when it does."""
    size = len(obj.payload)
    if obj.edge_id != edge_id:
        return f"an object of edge {obj.edge_id} came on edge {edge_id}"
    if size > spec.max_extent:
        return f"{obj.describe()} has {size} bytes, over the edge's limit of {spec.max_extent}"
    if obj.seq_len < 1 or size != spec.payload_bytes(obj.seq_len):
        wanted = spec.payload_bytes(obj.seq_len)
        return f"{obj.describe()} has {size} bytes where {obj.seq_len} positions take {wanted}"
    return None
