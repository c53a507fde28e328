"""N nodes in one process over real iroh, wired by a real plan: every message and every kind of object on every hop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.membership import SwimMembership, local_config, stage_name
from ppsmoke.messages import (
    ControlMessage,
    EdgeKind,
    Feedback,
    Generation,
    GgufSource,
    InboundEdgeProvision,
    OutboundEdgeProvision,
    StageFault,
    StageProgress,
    StageReady,
    StageStopped,
    StopRun,
    decode_message,
    encode_message,
)
from ppsmoke.objects import StreamObject, token_payload
from ppsmoke.plan import EdgePlan, GgufModelPlan, RunPlan, build_plan, provision_stage
from tests.membership.kit import member, seed_member
from tests.transport.kit import PATIENCE_S, RUN_ID, Peer, id_of, peer, run_clean

HIDDEN_DIM = 96
REQUEST = "ab" * 16
STRANGERS = replace(local_config(600.0), gossip_interval_s=0.05, names_interval_s=0.1, exchange_interval_s=0.2)
"""Members that probe nobody while a test lasts, and exchange all the more with those they have a link to."""


class Chain:
    def __init__(self, plan: RunPlan, orchestrator: Peer, stages: list[Peer]) -> None:
        self.plan = plan
        self.orchestrator = orchestrator
        self.stages = stages
        self.members: list[SwimMembership] = []
        self.acceptors: dict[str, EdgeAcceptor] = {}

    def peer_of(self, node_id: str) -> Peer:
        return next(peer for peer in [self.orchestrator, *self.stages] if peer.id == node_id)


@asynccontextmanager
async def chain(count: int, feedback: Feedback) -> AsyncIterator[Chain]:
    """Nodes that know nothing but the orchestrator's address, joined and named; membership has not linked any two."""
    dialling = pytest.MonkeyPatch()
    dialling.setattr(SwimMembership, "link_wanted", lambda _self, _node_id: None)
    async with AsyncExitStack() as stack:
        stack.callback(dialling.undo)
        orchestrator = await stack.enter_async_context(peer("orchestrator"))
        await stack.enter_async_context(seed_member(orchestrator, count, config=STRANGERS))
        stages = [await stack.enter_async_context(peer(f"stage {index}")) for index in range(count)]
        plan = build_plan(
            run_id=RUN_ID,
            model=GgufModelPlan(
                model_id="tiny",
                gguf_source=GgufSource(kind="file", paths=("/models/tiny.gguf",)),
                num_layers=8,
                hidden_dim=HIDDEN_DIM,
                max_seq_len=256,
                eos_token_ids=(2,),
            ),
            generation=Generation(max_tokens=16, eos_token_ids=(2,), feedback=feedback),
            orchestrator_id=orchestrator.id,
            node_ids=[stage.id for stage in stages],
        )
        made = Chain(plan, orchestrator, stages)
        made.acceptors[orchestrator.id] = EdgeAcceptor(orchestrator.mesh)
        for index, stage in enumerate(stages):
            stage.knows(orchestrator)
            made.acceptors[stage.id] = EdgeAcceptor(stage.mesh)
            joining = await stack.enter_async_context(member(stage, index, count, config=STRANGERS))
            await joining.join(PATIENCE_S)
            await joining.register(stage_name(index), PATIENCE_S)
            made.members.append(joining)
        for joined in made.members:
            for index in range(count):
                await joined.wait_name(stage_name(index), PATIENCE_S)
        yield made


async def wire(made: Chain, edge: EdgePlan) -> tuple[OutboundEdge, InboundEdge]:
    """Both ends of one planned edge, ready."""
    common = {
        "edge_id": edge.edge_id, "kind": edge.kind, "object_spec": edge.object_spec, "ring_spec": edge.ring_spec
    }  # fmt: skip
    into = InboundEdge(RUN_ID, InboundEdgeProvision(producer_node_id=edge.producer.node_id, **common))
    made.acceptors[edge.consumer.node_id].expect(into)
    mesh = made.peer_of(edge.producer.node_id).mesh
    out = OutboundEdge(mesh, RUN_ID, OutboundEdgeProvision(consumer_node_id=edge.consumer.node_id, **common))
    await asyncio.gather(out.open(PATIENCE_S), into.wait_ready(PATIENCE_S))
    return out, into


def objects_for(edge: EdgePlan) -> list[StreamObject]:
    """A prompt (for the wide edges in two parts), two steps, and the done object of a token edge."""

    def made(sequence: int, positions: int, **fields: object) -> StreamObject:
        if edge.object_spec.payload == "hidden":
            payload = os.urandom(positions * HIDDEN_DIM * 4)
        else:
            payload = token_payload([17 * sequence + place for place in range(positions)])
        return StreamObject(
            edge_id=edge.edge_id, request_id=REQUEST, sequence=sequence, position=sequence, seq_len=positions,
            payload=payload, is_prefill=sequence == 0, **fields,  # type: ignore[arg-type]
        )  # fmt: skip

    if edge.kind in (EdgeKind.TOKEN_IN, EdgeKind.ACTIVATION):
        prompt = [made(0, 128, last_part=False), made(0, 128, part=1)]
    else:
        prompt = [made(0, 1)]
    last = {"finish_reason": "eos"} if edge.kind is EdgeKind.TOKEN_OUT else {}
    return [*prompt, made(1, 1), made(2, 1, **last)]


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_kind_of_object_is_intact_over_every_edge_of_the_plan(count: int, feedback: Feedback) -> None:
    async def work() -> None:
        async with chain(count, feedback) as made:
            if count > 2:
                assert made.stages[0].id not in made.stages[-1].mesh.linked(), "Last never talked to First"
            edges = [await wire(made, edge) for edge in made.plan.edges]
            for plan, (out, into) in zip(made.plan.edges, edges, strict=True):
                sent = objects_for(plan)
                for obj in sent:
                    await out.write(obj)
                received = [await asyncio.wait_for(into.next(), PATIENCE_S) for _ in sent]
                assert received == sent, plan.kind
                finishing = asyncio.create_task(out.finish(PATIENCE_S))
                assert await asyncio.wait_for(into.next(), PATIENCE_S) is None
                await finishing
            kinds = {plan.kind for plan in made.plan.edges}
            assert kinds == set(EdgeKind) - (set() if feedback is Feedback.DIRECT else {EdgeKind.FEEDBACK})
            for out, into in edges:
                await out.close("test over")
                await into.close("test over")
                assert not out.faulted.done()
                assert not into.faulted.done()

    run_clean(work())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_control_message_is_intact_both_ways(count: int) -> None:
    async def work() -> None:
        async with chain(count, Feedback.DIRECT) as made:
            for index, stage in enumerate(made.stages):
                down: list[ControlMessage] = [
                    provision_stage(made.plan, index),
                    StopRun(run_id=RUN_ID, reason="done, naïvely: ✓"),
                ]
                where = {"run_id": RUN_ID, "stage_index": index, "node_id": stage.id}
                up: list[ControlMessage] = [
                    StageProgress(**where, phase="loading"),
                    StageReady(**where, device="CPU", timings={"load": 1.25}),
                    StageFault(**where, reason="it broke", code="worker_died", log_tail=("a", "b")),
                    StageStopped(**where, timings={"prefill": 0.5}),
                ]
                for message in down:
                    await made.orchestrator.mesh.send(stage.id, "control", encode_message(message))
                for message in up:
                    await stage.mesh.send(made.orchestrator.id, "control", encode_message(message))
                assert await control(stage, "orchestrator", len(down)) == down
                assert await control(made.orchestrator, f"stage {index}", len(up)) == up

    run_clean(work())


async def control(receiver: Peer, sender: str, count: int) -> list[ControlMessage]:
    def messages() -> list[ControlMessage]:
        return [
            decode_message(body)
            for name, channel, body in receiver.events.messages
            if name == sender and channel == "control"
        ]

    await receiver.events.until(lambda: len(messages()) >= count)
    return messages()


def test_any_pair_of_stages_can_link_from_membership_alone() -> None:
    async def work() -> None:
        async with chain(4, Feedback.DIRECT) as made:
            for dialler in made.stages:
                for other in made.stages:
                    if other is not dialler:
                        assert id_of("orchestrator") in dialler.mesh.linked()
                        await dialler.mesh.link(other.id, deadline_s=PATIENCE_S)
            for stage in made.stages:
                await stage.events.until(lambda s=stage: len(s.mesh.linked()) == 4)
                assert len(stage.events.up) == 4, "one link for each pair"
                assert not stage.events.down

    run_clean(work())
