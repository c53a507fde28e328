"""The orchestrator's two ends of the token edges: it produces TokenIn and consumes TokenOut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.messages import EdgeKind
from ppsmoke.objects import StreamObject, token_payload
from ppsmoke.plan import RunPlan, inbound_provision, outbound_provision
from ppsmoke.transport import Mesh


@dataclass(frozen=True, slots=True)
class Request:
    """`id`: 32 hex digits that no other request of the run has."""

    id: str
    prompt: tuple[int, ...]


class TokenEnds:
    """A run's token ends, for one request after the other.

    prefill_part: most prompt tokens in one object.
    resume_s: how long an edge may be without a connection before it faults, in seconds.

    Raises as the edges do.
    """

    def __init__(
        self,
        mesh: Mesh,
        acceptor: EdgeAcceptor,
        plan: RunPlan,
        *,
        prefill_part: int,
        resume_s: float,
    ) -> None:
        token_in, token_out = plan.edge_of_kind(EdgeKind.TOKEN_IN), plan.edge_of_kind(EdgeKind.TOKEN_OUT)
        self.producer = OutboundEdge(mesh, plan.run_id, outbound_provision(token_in), resume_s=resume_s)
        self.consumer = InboundEdge(plan.run_id, inbound_provision(token_out), resume_s=resume_s)
        self.consumer.name_producer(f"stage {len(plan.stages) - 1}")
        acceptor.expect(self.consumer)
        self._edge_id = token_in.edge_id
        self._prefill_part = prefill_part

    async def inject_prompt(self, request: Request) -> None:
        """Sequence 0, in as many parts as it takes."""
        starts = range(0, len(request.prompt), self._prefill_part)
        for part, start in enumerate(starts):
            tokens = request.prompt[start : start + self._prefill_part]
            await self.producer.write(
                StreamObject(
                    edge_id=self._edge_id,
                    request_id=request.id,
                    sequence=0,
                    position=start,
                    seq_len=len(tokens),
                    payload=token_payload(tokens),
                    part=part,
                    last_part=part == len(starts) - 1,
                    is_prefill=True,
                )
            )

    async def inject_token(self, request: Request, sequence: int, token: int) -> None:
        """The input of decode step `sequence`: the token before it."""
        await self.producer.write(
            StreamObject(
                edge_id=self._edge_id,
                request_id=request.id,
                sequence=sequence,
                position=len(request.prompt) + sequence - 1,
                seq_len=1,
                payload=token_payload([token]),
            )
        )

    async def tokens(self) -> AsyncIterator[StreamObject]:
        """What arrives on TokenOut, until the last stage ends the edge."""
        while (obj := await self.consumer.next()) is not None:
            yield obj

    async def close(self, reason: str) -> None:
        await self.producer.close(reason)
        await self.consumer.close(reason)
