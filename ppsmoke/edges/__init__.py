"""Edges: directed channels of objects with one producer, one consumer and a bounded ring at each end."""

from ppsmoke.edges.acceptor import EdgeAcceptor
from ppsmoke.edges.consumer import InboundEdge
from ppsmoke.edges.producer import OutboundEdge

__all__ = ["EdgeAcceptor", "InboundEdge", "OutboundEdge"]
