"""The edges of one stage: the inbound ones it accepts, the outbound ones it opens, as one provision says.

Each inbound edge has a data thread. It takes an object off the edge, hands it to the worker, has it judged by the
stage's machine while the worker computes, and writes what comes out, waiting for one after the other: no task, no queue
and no loop on an object's way, and nothing leaves the stage that the machine has not agreed to.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from queue import SimpleQueue

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.errors import EdgeFaulted, StageFaulted
from ppsmoke.membership import ORCHESTRATOR_NAME, Membership, stage_name
from ppsmoke.messages import EdgeKind, OutboundEdgeProvision, ProvisionStage
from ppsmoke.objects import StreamObject, is_prompt_record
from ppsmoke.roles import Role, role_of
from ppsmoke.stage.actor import Activation, Inference, NextToken, SetNeighbors, Work
from ppsmoke.stage.stage_state import Handle
from ppsmoke.transport import Mesh
from ppsmoke.transport.link import Outage
from ppsmoke.worker_steps import StepsAbandoned

log = logging.getLogger(__name__)

_STALE_S = 5.0
_POLL_S = 0.05

_JOIN_S = 5.0


@dataclass(frozen=True, slots=True)
class WiringDeadlines:
    """Seconds. `name_s`: for a neighbour's name to be known; `open_s`: for an edge to be accepted or opened;
    `resume_s`: for an edge whose connection was lost to go on over another one."""

    name_s: float
    open_s: float
    resume_s: float = 5.0


class Verdict(Enum):
    """What becomes of the object that a data thread has loaded."""

    EXECUTE = "execute"
    RELEASE = "release"
    STOP = "stop"


class _DataThread:
    """One inbound edge's thread, and what it has at hand."""

    def __init__(self, edge: InboundEdge) -> None:
        self.edge = edge
        self.verdicts: SimpleQueue[Verdict] = SimpleQueue()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.thread: threading.Thread | None = None
        self.computing = False


class Wiring:
    """Make it inside the event loop and `open_outbound` it once; `close` at any time.

    `ready(edge_id)`, `faulted(error)` and `resumed(edge, outage)` (an outbound edge goes on over another connection)
    are called in the event loop, the rest in an edge's data thread. For each inbound object, in its turn:
    `begin(kind, record)`, which may have the worker begin at once, and says whether it did; `load(handle)`; then the
    thread waits for `execute(handle)`, upon which it calls `finish(kind, record, obj, begun, arrived)` (`arrived` is
    when the object came) and `done(handle)`, or for `release(handle)`, after which it takes the edge's next object.
    `leave` is called at the end of a thread.
    """

    def __init__(
        self,
        mesh: Mesh,
        membership: Membership,
        acceptor: EdgeAcceptor,
        provision: ProvisionStage,
        deadlines: WiringDeadlines,
        *,
        ready: Callable[[int], None],
        faulted: Callable[[EdgeFaulted], None],
        resumed: Callable[[OutboundEdgeProvision, Outage], None],
        load: Callable[[Handle], None],
        begin: Callable[[type[Work], bytes], bool],
        finish: Callable[[type[Work], bytes, StreamObject, bool, float], None],
        done: Callable[[Handle], None],
        leave: Callable[[], None],
    ) -> None:
        self._mesh = mesh
        self._membership = membership
        self._provision = provision
        self._deadlines = deadlines
        self._ready = ready
        self._faulted = faulted
        self._load = load
        self._begin = begin
        self._finish = finish
        self._done = done
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._kinds = {edge.edge_id: edge.kind for edge in provision.inbound}
        resume_s = deadlines.resume_s
        self._inbound = {
            edge.edge_id: InboundEdge(provision.run_id, edge, threaded=True, resume_s=resume_s)
            for edge in provision.inbound
        }
        self._threads = {edge_id: _DataThread(edge) for edge_id, edge in self._inbound.items()}
        self._outbound = {
            edge.edge_id: OutboundEdge(mesh, provision.run_id, edge, threaded=True, resume_s=resume_s)
            for edge in provision.outbound
        }
        for out in self._outbound.values():
            out.on_resumed = partial(resumed, out.provision)
        # Feedback before its copy for the orchestrator.
        outbound = sorted(self._outbound.values(), key=lambda edge: edge.provision.kind is EdgeKind.TOKEN_OUT)
        self._first_out = outbound[0]
        for edge in self._inbound.values():
            edge.name_producer(mesh.name_of(edge.provision.producer_node_id))
            acceptor.expect(edge)

    @property
    def computing(self) -> bool:
        """Whether a step is in progress."""
        return any(data.computing for data in self._threads.values())

    async def serve_inbound(self, edge_id: int) -> None:
        """Wait for the producer's stream, then serve its objects until it ends. Raises as InboundEdge does, and what
        `compute` raises."""
        data = self._threads[edge_id]
        await data.edge.wait_ready(self._deadlines.open_s)
        if self._closing:
            return
        thread = threading.Thread(target=self._run, args=(data,), name=f"edge {edge_id}", daemon=True)
        thread.start()
        data.thread = thread  # only one that runs is waited for
        self._ready(edge_id)
        await asyncio.shield(data.ended)

    async def open_outbound(self) -> None:
        """Resolve the consumers and open an edge to each. Raises StageFaulted where a name is another node's."""
        for edge in self._provision.outbound:
            await self._resolve(edge)
        await asyncio.gather(*(self._open(edge_id, edge) for edge_id, edge in self._outbound.items()))

    def execute(self, handle: Handle) -> None:
        """The object's step may be computed."""
        self._threads[handle.edge_id].verdicts.put(Verdict.EXECUTE)

    def release(self, handle: Handle) -> None:
        """The object is done with; the edge's next one may be loaded."""
        self._threads[handle.edge_id].verdicts.put(Verdict.RELEASE)

    def neighbors(self) -> SetNeighbors:
        """Where the actor's outputs go."""
        edges = {edge.provision.kind: edge for edge in self._outbound.values()}
        if role_of(self._provision.stage_index, self._provision.stage_count) is Role.LAST:
            return SetNeighbors(next=edges.get(EdgeKind.FEEDBACK), reply_to=edges[EdgeKind.TOKEN_OUT])
        return SetNeighbors(next=edges[EdgeKind.ACTIVATION])

    @property
    def first_written(self) -> float | None:
        """When the newest step's first output had been written, None before any."""
        return self._first_out.written_at

    async def close(self, reason: str) -> None:
        """Stop every edge and end its thread; a step in progress must have been abandoned. Never raises."""
        self._stop_threads()
        closing = [edge.close(reason) for edge in self._inbound.values()]
        closing += [edge.close(reason) for edge in self._outbound.values()]
        await asyncio.gather(*closing, *(self._join(data) for data in self._threads.values()))

    async def halt(self) -> None:
        """End the threads and tell no peer: the links are about to be closed. As `close` otherwise."""
        self._stop_threads()
        for data in self._threads.values():
            data.edge.interrupt()
        for edge in self._outbound.values():
            edge.interrupt()
        await asyncio.gather(*(self._join(data) for data in self._threads.values()))

    def _stop_threads(self) -> None:
        self._closing = True
        for data in self._threads.values():
            data.verdicts.put(Verdict.STOP)

    async def _join(self, data: _DataThread) -> None:
        if data.thread is None:
            return
        await asyncio.wait((data.ended,), timeout=_JOIN_S)
        if not data.ended.done():
            log.error("the thread of edge %d did not end within %g s", data.edge.provision.edge_id, _JOIN_S)
            return
        data.ended.exception()
        data.thread.join(_JOIN_S)

    # ---- the data threads

    def _run(self, data: _DataThread) -> None:
        error: Exception | None = None
        try:
            self._serve(data)
        except Exception as caught:
            error = caught
        # The news first: leaving abandons a step that is owed, and another edge's thread may stumble over that.
        self._loop.call_soon_threadsafe(self._thread_ended, data, error)
        self._leave()

    def _thread_ended(self, data: _DataThread, error: Exception | None) -> None:
        if error is None or self._closing or isinstance(error, StepsAbandoned):  # what follows from a stop is no news
            data.ended.set_result(None)
        else:
            data.ended.set_exception(error)

    def _serve(self, data: _DataThread) -> None:
        edge, edge_id = data.edge, data.edge.provision.edge_id
        edge_kind = self._kinds[edge_id]
        while (record := edge.take()) is not None:
            arrived = time.monotonic()
            kind = _work_of(edge_kind, record)
            data.computing = begun = self._begin(kind, record)
            obj = edge.admit(record)
            if edge_kind is EdgeKind.FEEDBACK:  # token s on the feedback edge starts step s + 1
                obj = replace(obj, sequence=obj.sequence + 1)
            handle = Handle(edge_id, obj.request_id, obj.sequence, obj.part, obj.last_part, done=obj.done)
            self._load(handle)
            verdict = data.verdicts.get()
            if verdict is Verdict.EXECUTE:
                data.computing = True
                self._finish(kind, record, obj, begun, arrived)
                data.computing = False
                self._done(handle)
                verdict = data.verdicts.get()
            if verdict is Verdict.STOP:
                return

    # ---- opening

    async def _open(self, edge_id: int, edge: OutboundEdge) -> None:
        # The consumer accepts when it was provisioned itself, which may be a moment after us.
        await edge.open(self._deadlines.open_s)
        edge.faulted.add_done_callback(self._edge_faulted)
        self._ready(edge_id)

    def _edge_faulted(self, faulted: asyncio.Future[EdgeFaulted]) -> None:
        if not faulted.cancelled() and not self._closing:
            self._faulted(faulted.result())

    async def _resolve(self, edge: OutboundEdgeProvision) -> None:
        """The name must lead to the node of the plan: identity comes from the plan, addresses from names."""
        stage = self._provision.stage_index
        names = {
            EdgeKind.ACTIVATION: stage_name(stage + 1),
            EdgeKind.FEEDBACK: stage_name(0),
            EdgeKind.TOKEN_OUT: ORCHESTRATOR_NAME,
        }
        name = names[edge.kind]
        found = await self._membership.wait_name(name, deadline_s=self._deadlines.name_s)
        ends = self._loop.time() + min(_STALE_S, self._deadlines.name_s)
        while found != edge.consumer_node_id and self._loop.time() < ends:
            # Its former holder may have left a moment ago, and the news be on its way.
            await asyncio.sleep(_POLL_S)
            found = self._membership.resolve(name) or found
        if found != edge.consumer_node_id:
            planned = self._mesh.name_of(edge.consumer_node_id)
            raise StageFaulted(
                f"{name} is {self._mesh.name_of(found)}, the plan says {planned}", stage=stage, phase=f"resolve {name}"
            )


def _work_of(kind: EdgeKind, record: bytes) -> type[Work]:
    """The actor's message for an object."""
    if kind is EdgeKind.ACTIVATION:
        return Activation
    return Inference if kind is EdgeKind.TOKEN_IN and is_prompt_record(record) else NextToken
