"""A middle stage's edges and data threads between two real neighbours, with the worker's end in the test's hand."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.errors import EdgeFaulted, PpError
from ppsmoke.membership import Membership, stage_name
from ppsmoke.messages import EdgeKind, Generation, GgufSource
from ppsmoke.objects import StreamObject
from ppsmoke.plan import GgufModelPlan, build_plan, inbound_provision, outbound_provision, provision_stage
from ppsmoke.stage.actor import StageActor, Work
from ppsmoke.stage.stage_state import Handle
from ppsmoke.stage.wiring import Wiring, WiringDeadlines
from ppsmoke.step_frames import decode_request, hidden_reply
from ppsmoke.step_socket import StepSocket
from ppsmoke.transport.framing import READ_BYTES
from ppsmoke.worker_steps import StepChannel, WorkerDeadlines
from tests.transport.kit import PATIENCE_S, RUN_ID, Peer, eventually, id_of, peer, run_clean

HIDDEN_DIM = 1024
ROW = HIDDEN_DIM * 4
REQUEST = "cd" * 16


class Names:
    """A membership in which every stage has the node of the plan."""

    async def wait_name(self, name: str, deadline_s: float) -> str:
        return {stage_name(index): id_of(f"stage {index}") for index in range(3)}[name]


class Stage:
    """The stage under test: what a node does around its wiring, without the machine's judgement."""

    def __init__(self, mesh: Any, source: OutboundEdge, sink: InboundEdge, plan: Any) -> None:
        loop = asyncio.get_running_loop()
        node_end, worker_end = socket.socketpair()
        self.source = source
        self.sink = sink
        self.steps = StepChannel(
            node_end, 1, WorkerDeadlines(), loop, gone=self._gone, log_tail=tuple, forget=self._forget
        )
        self.worker = StepSocket(worker_end)
        self.loaded: list[Handle] = []
        self.done: list[Handle] = []
        self.faults: list[Exception] = []
        self.resumed: list[tuple[int, float]] = []
        self.judge = True
        self.actor = StageActor(
            stage_index=1,
            stage_count=3,
            worker=self.steps,
            generation=plan.generation,
            context=plan.model.max_seq_len,
            log=self.faults.append,
        )
        self.wiring = Wiring(
            mesh,
            cast(Membership, Names()),
            EdgeAcceptor(mesh),
            provision_stage(plan, 1),
            WiringDeadlines(PATIENCE_S, PATIENCE_S),
            ready=lambda _edge_id: None,
            faulted=self.faults.append,
            resumed=lambda edge, outage: self.resumed.append((edge.edge_id, outage.stall_s)),
            begin=self.actor.begin,
            load=self._load,
            finish=self._finish,
            done=self._done,
            leave=self.steps.leave,
        )
        self.actor.handle(self.wiring.neighbors())
        self.serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        (edge_id,) = self.wiring._inbound
        self.serving = asyncio.create_task(self.wiring.serve_inbound(edge_id))
        await asyncio.gather(
            self.wiring.open_outbound(), self.source.open(PATIENCE_S), self.sink.wait_ready(PATIENCE_S)
        )

    async def close(self) -> None:
        """As on StopRun."""
        self.steps.abandon()
        await self.wiring.close("stopped")

    def _load(self, handle: Handle) -> None:
        self.loaded.append(handle)
        if self.judge:
            self.wiring.execute(handle)

    def _finish(self, kind: type[Work], record: bytes, obj: StreamObject, begun: bool, arrived: float) -> None:
        assert begun
        self.actor.finish(obj)

    def _done(self, handle: Handle) -> None:
        self.done.append(handle)
        self.wiring.release(handle)

    async def _gone(self) -> PpError:
        return EdgeFaulted("the worker is gone")

    async def _forget(self, request_id: str | None) -> None:
        raise AssertionError(request_id)

    # ---- the worker's side

    def compute(self) -> int:
        """Answer one step with its own rows; returns its position."""
        got = self.worker.receive_request()
        assert got is not None
        step = decode_request(got[0], got[1], HIDDEN_DIM)
        self.worker.send(hidden_reply(len(step.hidden), 0.0, 0.0), step.hidden)
        return step.position


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with peer("stage 0") as before, peer("stage 1") as here, peer("stage 2") as after:
        before.knows(here)
        here.knows(after)
        plan = build_plan(
            run_id=RUN_ID,
            model=GgufModelPlan(
                model_id="tiny", gguf_source=GgufSource(kind="file", paths=("/tiny.gguf",)), num_layers=3,
                hidden_dim=HIDDEN_DIM, max_seq_len=4096, eos_token_ids=(2,),
            ),
            generation=Generation(max_tokens=16, eos_token_ids=(2,)),
            orchestrator_id=id_of("orchestrator"),
            node_ids=[id_of(f"stage {index}") for index in range(3)],
        )  # fmt: skip
        made = Stage(here.mesh, source(plan, before), sink(plan, after), plan)
        try:
            await made.open()
            yield made
        finally:
            await made.close()
            await made.source.close("test over")
            await made.sink.close("test over")
            made.steps.close()
            made.worker.close()
            if made.serving is not None:
                await asyncio.wait((made.serving,))
        left = [thread for thread in threading.enumerate() if thread.name.startswith("edge ")]
        assert not left, "threads left behind"


def source(plan: Any, producer: Peer) -> OutboundEdge:
    (edge,) = [e for e in plan.edges if e.kind is EdgeKind.ACTIVATION and e.consumer.node_id == id_of("stage 1")]
    return OutboundEdge(producer.mesh, RUN_ID, outbound_provision(edge))


def sink(plan: Any, consumer: Peer) -> InboundEdge:
    (edge,) = [e for e in plan.edges if e.kind is EdgeKind.ACTIVATION and e.consumer.node_id == id_of("stage 2")]
    into = InboundEdge(RUN_ID, inbound_provision(edge))
    EdgeAcceptor(consumer.mesh).expect(into)
    return into


def part(number: int, rows: int, *, last: bool = False) -> StreamObject:
    return StreamObject(
        edge_id=1,
        request_id=REQUEST,
        sequence=0,
        position=number * rows,
        seq_len=rows,
        payload=os.urandom(rows * ROW),
        part=number,
        last_part=last,
        is_prefill=True,
    )


def aimed(obj: StreamObject, edge: OutboundEdge) -> StreamObject:
    return replace(obj, edge_id=edge.provision.edge_id)


async def in_thread(work: Any, *arguments: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(work, *arguments), PATIENCE_S)


def test_parts_go_through_in_order_one_step_at_a_time() -> None:
    async def work() -> None:
        async with stage() as made:
            sent = [aimed(part(number, 50, last=number == 7), made.source) for number in range(8)]
            for obj in sent:
                await made.source.write(obj)
            assert [await in_thread(made.compute) for _ in sent] == [obj.position for obj in sent]
            received = [await asyncio.wait_for(made.sink.next(), PATIENCE_S) for _ in sent]
            assert [replace(obj, edge_id=0) for obj in received if obj] == [replace(obj, edge_id=0) for obj in sent]
            await eventually(lambda: len(made.done) == len(sent))
            assert made.loaded == made.done
            assert not made.wiring.computing

    run_clean(work())


def test_nothing_leaves_the_stage_before_the_machine_has_agreed() -> None:
    """The worker may begin before; its outcome waits for the verdict."""

    async def work() -> None:
        async with stage() as made:
            made.judge = False
            await made.source.write(aimed(part(0, 1), made.source))
            await in_thread(made.compute)
            await eventually(lambda: len(made.loaded) == 1)
            taking = asyncio.create_task(made.sink.next())
            await asyncio.wait((taking,), timeout=0.2)
            assert not taking.done()
            made.wiring.execute(made.loaded[0])
            assert await asyncio.wait_for(taking, PATIENCE_S) is not None

    run_clean(work())


@pytest.mark.parametrize("how", ["close", "halt"])
@pytest.mark.parametrize(
    "waiting", ["to read", "for the verdict", "for the worker", pytest.param("to write", marks=pytest.mark.slow)]
)
def test_a_stop_takes_effect_at_once_wherever_the_thread_waits(waiting: str, how: str) -> None:
    async def work() -> None:
        async with stage() as made:
            made.judge = waiting != "for the verdict"
            rows = 100
            flooding: asyncio.Task[None] | None = None
            computing: asyncio.Task[Any] | None = None
            if waiting in ("for the verdict", "for the worker"):
                await made.source.write(aimed(part(0, rows), made.source))
                await in_thread(made.worker.receive_request)
                await eventually(lambda: len(made.loaded) == 1)
                assert made.wiring.computing
            if waiting == "to write":
                flooding = asyncio.create_task(flood(made, rows))
                computing = asyncio.create_task(in_thread(compute_on, made))
                (out,) = made.wiring._outbound.values()
                await eventually(lambda: out.bytes > 1_000_000)
                written = -1
                while written != out.bytes:  # until the window is full
                    written = out.bytes
                    await asyncio.sleep(0.3)
                # Neither end keeps more than the transport's window and what it has in hand.
                window, ring = 1_300_000, made.sink.provision.ring_spec
                kept = min(ring.max_bytes, ring.max_objects * rows * ROW)
                assert written <= window + kept + READ_BYTES + 2 * rows * ROW
            (data,) = made.wiring._threads.values()
            assert data.thread is not None
            assert data.thread.is_alive(), f"it ended by itself: {data.ended}"
            made.steps.abandon()
            ending = made.wiring.close("stopped") if how == "close" else made.wiring.halt()
            await asyncio.wait_for(ending, 4.0)
            assert not data.thread.is_alive()
            assert made.serving is not None
            await asyncio.wait_for(made.serving, 1.0)
            assert made.faults == []
            if flooding is not None and computing is not None:
                flooding.cancel()
                made.worker.shut()
                await asyncio.wait((flooding, computing))

    run_clean(work())


async def flood(made: Stage, rows: int) -> None:
    with suppress(EdgeFaulted):  # it was stopped
        for number in range(200):
            await made.source.write(aimed(part(number, rows), made.source))


def compute_on(made: Stage) -> None:
    while (got := made.worker.receive_request()) is not None:
        made.worker.send(hidden_reply(len(got[1]), 0.0, 0.0), got[1])


def test_a_worker_that_ends_in_a_step_is_the_stages_fault() -> None:
    async def work() -> None:
        async with stage() as made:
            await made.source.write(aimed(part(0, 10), made.source))
            await in_thread(made.worker.receive_request)
            made.worker.shut()
            assert made.serving is not None
            with pytest.raises(EdgeFaulted, match="the worker is gone") as caught:
                await asyncio.wait_for(made.serving, PATIENCE_S)
            assert caught.value.phase == "prefill at position 0"

    run_clean(work())


def test_a_producer_that_leaves_is_the_stages_fault() -> None:
    async def work() -> None:
        async with stage() as made:
            await made.source._mesh.close("out of memory")
            assert made.serving is not None
            with pytest.raises(EdgeFaulted, match="stage 0 left: out of memory"):
                await asyncio.wait_for(made.serving, PATIENCE_S)

    run_clean(work())
