"""Links between processes over iroh QUIC: endpoint, frames, handshake, mesh."""

from ppsmoke.transport.endpoint import Endpoint, TicketInvalid, node_id_of, parse_ticket
from ppsmoke.transport.events import MeshEvents
from ppsmoke.transport.hello import Refused
from ppsmoke.transport.mesh import Mesh

__all__ = ["Endpoint", "Mesh", "MeshEvents", "Refused", "TicketInvalid", "node_id_of", "parse_ticket"]
