"""The two ends of an edge as state machines. Pure.

Every method is an event. What may not happen in a state raises EdgeFaulted and leaves the machine `FAULTED`; from then
on every event raises that first fault again. A refusal is different: it answers a stream that is not this edge's, and
the edge goes on waiting for the right one. `CLOSED` is an end without a fault: one of the two sides was told to stop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from ppsmoke.edges.order import ObjectOrder
from ppsmoke.edges.records import Accept, Closed, Ended, Fault, Finish, Open, Record, Refuse
from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import InboundEdgeProvision, ObjectSpec, OutboundEdgeProvision
from ppsmoke.objects import StreamObject


class ProducerState(StrEnum):
    IDLE = "idle"
    OPENING = "opening"
    READY = "ready"
    FINISHING = "finishing"
    FINISHED = "finished"
    CLOSED = "closed"
    FAULTED = "faulted"


class ConsumerState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
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

    def open(self) -> Open:
        """The first record of the edge's stream."""
        self._check_alive()
        if self.state is not ProducerState.IDLE:
            self._raise("it was opened twice")
        self.state = ProducerState.OPENING
        return Open(self._run_id, self._provision.edge_id, self._provision.kind.value)

    def answered(self, record: Record) -> None:
        """What the consumer said."""
        self._check_alive()
        match record:
            case Accept() if self.state is ProducerState.OPENING:
                self.state = ProducerState.READY
            case Refuse(reason) if self.state is ProducerState.OPENING:
                self._raise(f"{self.peer_name} refused the edge: {reason}")
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
        if self.state is not ProducerState.READY:
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

    def opened(self, peer_id: str, record: Open) -> Accept | Refuse:
        """A peer opened a stream for this edge id."""
        if record.run_id != self.run_id:
            return Refuse("the run id is not the active one")
        if record.edge_id != self._provision.edge_id:
            return Refuse(f"this is edge {self._provision.edge_id}, not {record.edge_id}")
        if peer_id != self._provision.producer_node_id:
            return Refuse(f"the planned producer of edge {record.edge_id} is {self.peer_name}")
        if record.kind != self._provision.kind.value:
            return Refuse(f"edge {record.edge_id} is {self._provision.kind.value}, not {record.kind[:40]}")
        if self.state is not ConsumerState.WAITING:
            return Refuse(f"edge {record.edge_id} has had its stream (it is {self.state})")
        self.state = ConsumerState.READY
        return Accept()

    def object(self, obj: StreamObject) -> None:
        """An object arrived on the edge's stream."""
        self._check_alive()
        if self.state is not ConsumerState.READY:
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
