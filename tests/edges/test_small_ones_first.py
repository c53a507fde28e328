"""Streams of activations let every other stream of their connection go first."""

from __future__ import annotations

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge, lanes
from ppsmoke.messages import EdgeKind
from ppsmoke.transport.stream import FrameStream
from tests.edges.kit import TOKENS, inbound, outbound
from tests.transport.kit import PATIENCE_S, RUN_ID, peer, run_clean


@pytest.mark.parametrize("long_way", [False, True])
def test_activations_have_a_lower_priority_than_tokens_messages_and_probes(
    long_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[FrameStream] = []
    really = FrameStream.set_priority

    async def note(stream: FrameStream, priority: int) -> None:
        await really(stream, priority)
        if priority < 0:
            lowered.append(stream)

    monkeypatch.setattr(FrameStream, "set_priority", note)
    monkeypatch.setattr(lanes, "LONG_ROUND_TRIP_S", -1.0 if long_way else 60.0)

    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            acceptor = EdgeAcceptor(b.mesh)
            ends = [InboundEdge(RUN_ID, inbound("stage 0", edge_id=1))]
            ends.append(InboundEdge(RUN_ID, inbound("stage 0", edge_id=2, kind=EdgeKind.FEEDBACK, spec=TOKENS)))
            for end in ends:
                acceptor.expect(end)
            large = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", edge_id=1))
            small = OutboundEdge(a.mesh, RUN_ID, outbound("stage 1", edge_id=2, kind=EdgeKind.FEEDBACK, spec=TOKENS))
            await small.open(PATIENCE_S)
            assert lowered == []
            await large.open(PATIENCE_S)
            assert large._lanes is not None
            assert lowered == large._lanes.streams
            assert len(lowered) == (lanes.LANES if long_way else 1)
            for edge in (large, small, *ends):
                await edge.close("test over")

    run_clean(work())
