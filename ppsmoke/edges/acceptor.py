"""Hands incoming edge streams to the inbound edges of the active plan and refuses every other stream."""

from __future__ import annotations

import asyncio
import logging

from ppsmoke.edges import records
from ppsmoke.edges.consumer import InboundEdge
from ppsmoke.errors import PpError
from ppsmoke.paths.probe import answer, is_probe
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.mesh import Mesh
from ppsmoke.transport.stream import FrameStream
from ppsmoke.waiting import wait_for

log = logging.getLogger(__name__)

_MAX_GREETINGS = 64
_FIRST = (records.Open, records.Resume, records.Lane)


class EdgeAcceptor:
    """Takes over the mesh's incoming streams.

    A producer may have been provisioned a moment before us: while no edge is expected its stream is held, for `hold_s`
    seconds and `max_held` streams at most, and judged when edges come. `open_deadline_s`: how long a new stream may
    take to say which edge it is.
    """

    def __init__(self, mesh: Mesh, *, hold_s: float = 10.0, max_held: int = 16, open_deadline_s: float = 10.0) -> None:
        self._mesh = mesh
        self._hold_s = hold_s
        self._max_held = max_held
        self._open_deadline_s = open_deadline_s
        self._held = 0
        self._greetings = 0
        self._edges: list[InboundEdge] = []
        self._expected = asyncio.Event()
        mesh.on_stream = self.offered

    def expect(self, edge: InboundEdge) -> None:
        """Judge streams against this edge too, until it is closed. Expect all edges of a plan in one go."""
        producer = edge.provision.producer_node_id
        edge.name_producer(self._mesh.name_of(producer))
        edge.is_stopped = lambda: producer in self._mesh.stopped
        edge.redial = lambda: self._mesh.link(producer)
        self._edges = [*self._open_edges(), edge]
        self._expected.set()

    def offered(self, peer_id: str, stream: FrameStream) -> None:
        """The mesh's `on_stream`."""
        if self._greetings >= _MAX_GREETINGS:
            self._mesh.spawn(stream.abort(), "refuse a stream")
            return
        self._greetings += 1
        self._mesh.spawn(self._greet(peer_id, stream), f"greet a stream from {self._mesh.name_of(peer_id)}")

    async def _greet(self, peer_id: str, stream: FrameStream) -> None:
        name = self._mesh.name_of(peer_id)
        stream.cutter.max_frame = records.MAX_RECORD_BYTES
        try:
            async with asyncio.timeout(self._open_deadline_s):
                first = await stream.read_frame() or b""
            if is_probe(first):
                await answer(stream, first)
                return
            record = records.decode(first)
            if not isinstance(record, _FIRST):
                raise records.RecordMalformed(f"a stream must begin with Open, not {type(record).__name__}")
            refuse = await self._judge(peer_id, record, stream)
            if refuse is None:
                return
            log.warning("refused edge %d from %s: %s", record.edge_id, name, refuse.reason)
            async with asyncio.timeout(1.0):
                await stream.write_frame(records.encode(refuse))
                await stream.finish()
            await stream.stop_reading()
        except TimeoutError:
            log.warning("%s opened a stream and said nothing within %g s", name, self._open_deadline_s)
            await stream.abort()
        except (PpError, FrameError, records.RecordMalformed) as error:
            log.warning("%s opened a stream that is no edge: %s", name, error)
            await stream.abort()
        finally:
            self._greetings -= 1

    async def _judge(
        self, peer_id: str, record: records.Open | records.Resume | records.Lane, stream: FrameStream
    ) -> records.Refuse | None:
        """None when an edge has taken the stream over."""
        if not self._open_edges():
            if self._held >= self._max_held:
                return records.Refuse("no run is active here, and too many streams wait for one")
            self._held += 1
            self._expected.clear()
            try:
                await wait_for(self._expected.wait(), self._hold_s)
            except TimeoutError:
                return records.Refuse("no run is active here")
            finally:
                self._held -= 1
        edges = self._open_edges()
        if all(edge.run_id != record.run_id for edge in edges):
            return records.Refuse("the run id is not the active one")
        for edge in edges:
            if edge.provision.edge_id == record.edge_id:
                match record:
                    case records.Open():
                        return edge.offered(peer_id, record, stream, self._mesh.spawn)
                    case records.Resume():
                        return edge.resumed(peer_id, record, stream, self._mesh.spawn)
                    case records.Lane():
                        return edge.offered_lane(peer_id, record, stream)
        return records.Refuse(f"there is no inbound edge {record.edge_id} here")

    def _open_edges(self) -> list[InboundEdge]:
        return [edge for edge in self._edges if not edge.closed]
