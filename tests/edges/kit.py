"""Edges between two meshes on loopback."""

from __future__ import annotations

from ppsmoke.messages import EdgeKind, InboundEdgeProvision, ObjectSpec, OutboundEdgeProvision, RingSpec
from ppsmoke.objects import StreamObject, token_payload
from tests.transport.kit import id_of

REQUEST = "cd" * 16
HIDDEN = ObjectSpec(payload="hidden", hidden_dim=64, max_extent=64 * 4 * 4096)
TOKENS = ObjectSpec(payload="tokens", max_extent=4 * 512)
RING = RingSpec(max_objects=4, max_bytes=1 << 20)


def outbound(
    consumer: str,
    *,
    edge_id: int = 1,
    kind: EdgeKind = EdgeKind.ACTIVATION,
    spec: ObjectSpec = HIDDEN,
    ring: RingSpec = RING,
) -> OutboundEdgeProvision:
    return OutboundEdgeProvision(
        edge_id=edge_id, kind=kind, consumer_node_id=id_of(consumer), object_spec=spec, ring_spec=ring
    )


def inbound(
    producer: str,
    *,
    edge_id: int = 1,
    kind: EdgeKind = EdgeKind.ACTIVATION,
    spec: ObjectSpec = HIDDEN,
    ring: RingSpec = RING,
) -> InboundEdgeProvision:
    return InboundEdgeProvision(
        edge_id=edge_id, kind=kind, producer_node_id=id_of(producer), object_spec=spec, ring_spec=ring
    )


def activation(sequence: int, *, rows: int = 1, edge_id: int = 1, request: str = REQUEST) -> StreamObject:
    """An activation whose bytes tell which one it is."""
    return StreamObject(
        edge_id=edge_id,
        request_id=request,
        sequence=sequence,
        position=sequence,
        seq_len=rows,
        payload=sequence.to_bytes(4, "little") * (64 * rows),
        is_prefill=sequence == 0,
    )


def token(sequence: int, value: int, *, edge_id: int = 1, done: bool = False) -> StreamObject:
    return StreamObject(
        edge_id=edge_id,
        request_id=REQUEST,
        sequence=sequence,
        position=sequence,
        seq_len=1,
        payload=token_payload([value]),
        finish_reason="eos" if done else None,
    )
