"""The node's hold on its worker: replies, deadlines, deaths and endings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psutil
import pytest

from ppsmoke.errors import DeadlineExceeded, ModelNotFound, OutOfOrder, WorkerDied, WorkerFailed
from ppsmoke.stub_model import StubModel, stub_tokens
from ppsmoke.worker_client import WorkerProcess
from ppsmoke.worker_steps import StepsAbandoned, WorkerDeadlines
from tests.worker.steps import REQUEST, decode_step, embed_and_forward, forward_and_sample, forward_range

READY_S = 60.0
PROMPT = [104, 105]
Body = Callable[[WorkerProcess], Awaitable[None]]


async def spawn(stage: int = 0, num_stages: int = 2, step_s: float = 60.0, **knobs: int) -> WorkerProcess:
    return await WorkerProcess.spawn(
        stage=stage,
        num_stages=num_stages,
        model=str(StubModel(**knobs)),
        context=128,
        stub=True,
        deadlines=WorkerDeadlines(prefill_s=step_s, step_s=step_s),
    )


def with_worker(body: Body, step_s: float = 60.0, **knobs: int) -> None:
    async def run() -> None:
        worker = await spawn(step_s=step_s, **knobs)
        try:
            await body(worker)
        finally:
            await worker.stop(5)

    asyncio.run(run())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(WorkerDied, match=r"stage 1's worker could not be started: .*No such file") as caught:
        asyncio.run(spawn(1))
    assert (caught.value.stage, caught.value.phase) == (1, "starting the worker")


def test_a_load_is_followed_block_by_block_and_disturbs_no_reply() -> None:
    told: list[Mapping[str, Any]] = []

    async def run() -> None:
        model = StubModel(load_ms=2000)
        worker = await WorkerProcess.spawn(
            stage=0, num_stages=2, model=str(model), context=128, stub=True, on_progress=told.append
        )
        try:
            ready = await worker.wait_ready(READY_S)
            assert (ready.layer_start, ready.layer_end) == (0, 4)
            told.clear()  # of the first load; now one that a request waits for
            await worker.configure(model=str(model), layer_start=0, layer_end=6, context=128)
            assert await worker.tokenize("hi") == PROMPT
        finally:
            await worker.stop(5)

    asyncio.run(run())
    assert {(line["state"], line["total"], line["unit"]) for line in told} == {("loading", 6, "blocks")}
    done = [line["done"] for line in told]
    assert done[0] == 0
    assert done == sorted(set(done))
    assert done[-1] > 0


@pytest.mark.parametrize("configured", [False, True])
def test_three_workers_say_what_the_stub_is_bound_to_say(configured: bool) -> None:
    model = StubModel(eos_after=20)

    async def run() -> list[int | None]:
        workers = [await spawn(stage, 3, eos_after=20) for stage in range(3)]
        try:
            ranges = [await worker.wait_ready(READY_S) for worker in workers]
            if configured:
                for worker, ready in zip(workers, ranges, strict=True):
                    assert ready.layer_start is not None
                    assert ready.layer_end is not None
                    await worker.configure(
                        model=str(model), layer_start=ready.layer_start, layer_end=ready.layer_end, context=128
                    )
            tokens: list[int | None] = []
            position, count = 0, len(PROMPT)
            rows = await embed_and_forward(workers[0], REQUEST, PROMPT, 0)
            while True:
                rows = await forward_range(workers[1], REQUEST, rows, position, count, not tokens)
                token = await forward_and_sample(workers[2], REQUEST, rows, position, count, not tokens)
                tokens.append(token)
                if not token:
                    return tokens
                position, count = position + count, 1
                rows = await decode_step(workers[0], REQUEST, token, position)
        finally:
            await asyncio.gather(*(worker.stop(5) for worker in workers))

    assert asyncio.run(run()) == stub_tokens(PROMPT, 100, model)


def test_ready_tells_range_role_and_facts() -> None:
    async def body(worker: WorkerProcess) -> None:
        ready = await worker.wait_ready(READY_S)
        assert (ready.pid, ready.role, ready.layer_start, ready.layer_end) == (worker.pid, "First", 0, 4)
        assert (ready.device, ready.facts["num_layers"]) == ("STUB", 8)
        assert await worker.wait_ready(1) == ready

    with_worker(body)


def test_an_answered_error_has_its_own_class_and_the_worker_lives_on() -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        await embed_and_forward(worker, REQUEST, PROMPT, 0)
        with pytest.raises(OutOfOrder) as caught:
            await decode_step(worker, REQUEST, 1, 9)
        assert (caught.value.stage, caught.value.phase) == (0, "decode at position 9")
        assert await worker.detokenize(await worker.tokenize("hé")) == "hé"
        await worker.reset(REQUEST)
        await embed_and_forward(worker, REQUEST, PROMPT, 0)

    with_worker(body)


def test_a_failed_step_is_an_error_with_the_stage() -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        await embed_and_forward(worker, REQUEST, PROMPT, 0)
        with pytest.raises(WorkerFailed, match="step 1") as caught:
            await decode_step(worker, REQUEST, 1, 2)
        assert caught.value.stage == 0

    with_worker(body, fail_at=1)


def test_a_worker_that_cannot_load_raises_the_class_of_its_code() -> None:
    async def run() -> None:
        worker = await WorkerProcess.spawn(stage=0, num_stages=2, model="/no/such.gguf", context=8)
        try:
            with pytest.raises(ModelNotFound) as caught:
                await worker.wait_ready(READY_S)
            assert (caught.value.stage, caught.value.phase) == (0, "starting the worker")
            assert "exit status 3" in (await asyncio.wait_for(worker.died, READY_S)).what
        finally:
            await worker.stop(5)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("knob", "ending", "log"), [("exit_at", "exit status 7", "exiting"), ("kill_at", "SIGKILL", "killing")]
)
def test_a_death_in_a_step_says_how_and_gives_the_last_log_lines(knob: str, ending: str, log: str) -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        with pytest.raises(WorkerDied, match=f"stage 0's worker ended .*{ending}") as caught:
            await embed_and_forward(worker, REQUEST, PROMPT, 0)
        assert any(log in line for line in caught.value.log_tail)
        assert worker.died.done()
        assert worker.died.result() is caught.value
        with pytest.raises(WorkerDied):
            await worker.reset()
        with pytest.raises(WorkerDied):
            await decode_step(worker, REQUEST, 1, 2)

    with_worker(body, **{knob: 0})


@pytest.mark.parametrize("moment", ["loading", "idle", "in a step"])
def test_a_killed_worker_is_known_within_a_second(moment: str) -> None:
    async def body(worker: WorkerProcess) -> None:
        pending: asyncio.Task[object] | None = None
        if moment == "loading":
            pending = asyncio.create_task(worker.wait_ready(READY_S))
        else:
            await worker.wait_ready(READY_S)
        if moment == "in a step":
            pending = asyncio.create_task(embed_and_forward(worker, REQUEST, PROMPT, 0))
            await until(lambda: any("hanging" in line for line in worker.log_tail))
        os.kill(worker.pid, signal.SIGKILL)
        error = await asyncio.wait_for(asyncio.shield(worker.died), 1.0)
        assert "SIGKILL" in error.what
        assert error.stage == 0
        if pending is not None:
            with pytest.raises(WorkerDied):
                await asyncio.wait_for(pending, 1.0)

    with_worker(body, **({"load_ms": 600_000} if moment == "loading" else {"hang_at": 0}))


def test_a_deadline_names_stage_and_phase_and_shows_the_log() -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        with pytest.raises(DeadlineExceeded, match="stage 0") as caught:
            await embed_and_forward(worker, REQUEST, PROMPT, 0)
        assert caught.value.phase == "prefill at position 0"
        assert any("hanging" in line for line in caught.value.log_tail)

    with_worker(body, step_s=1.0, hang_at=0)


def test_not_ready_in_time_is_a_deadline() -> None:
    async def body(worker: WorkerProcess) -> None:
        with pytest.raises(DeadlineExceeded, match="starting the worker"):
            await worker.wait_ready(0.2)

    with_worker(body, load_ms=600_000)


def test_the_late_reply_of_a_cancelled_op_is_not_taken_for_the_next_ones() -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        asked = asyncio.create_task(worker.tokenize("abc"))
        await asyncio.sleep(0)
        asked.cancel()
        assert await worker.detokenize([100]) == "d"

    with_worker(body)


@pytest.mark.parametrize("moment", ["in a step", "before one"])
def test_an_abandoned_step_ends_at_once_and_no_other_begins(moment: str) -> None:
    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        if moment == "in a step":
            asked = asyncio.create_task(embed_and_forward(worker, REQUEST, PROMPT, 0))
            await until(lambda: any("hanging" in line for line in worker.log_tail))
            assert worker.steps.doing == "prefill at position 0"
            worker.steps.abandon()
            with pytest.raises(StepsAbandoned):
                await asyncio.wait_for(asked, 1.0)
        else:
            worker.steps.abandon()
        with pytest.raises(StepsAbandoned):
            await decode_step(worker, REQUEST, 1, 2)
        assert worker.steps.doing is None
        # The worker itself was told nothing: it ends when it is stopped.
        assert not worker.died.done()

    with_worker(body, hang_at=0)


def test_steps_and_other_requests_find_one_worker_each_in_its_turn() -> None:
    """Steps come over a socket of their own, the rest over stdin; the worker waits for both."""

    async def body(worker: WorkerProcess) -> None:
        await worker.wait_ready(READY_S)
        for _ in range(20):
            await worker.reset(REQUEST)
            rows, text = await asyncio.gather(embed_and_forward(worker, REQUEST, PROMPT, 0), worker.detokenize(PROMPT))
            assert (len(rows), text) == (len(PROMPT) * 64 * 4, "hi")
            assert worker.steps.stamps.sent <= worker.steps.stamps.began <= worker.steps.stamps.done
            assert worker.steps.stamps.done <= worker.steps.stamps.back

    with_worker(body)


def test_a_step_bigger_than_a_socket_holds_comes_through_whole() -> None:
    async def run() -> None:
        model = StubModel(hidden=2048, context=512)
        worker = await WorkerProcess.spawn(stage=0, num_stages=2, model=str(model), context=512, stub=True)
        try:
            await worker.wait_ready(READY_S)
            rows = await embed_and_forward(worker, REQUEST, range(256), 0)
            assert len(rows) == 256 * 2048 * 4
        finally:
            await worker.stop(5)

    asyncio.run(run())


@pytest.mark.parametrize(
    "moment", ["at once", "loading", "idle", "in a step", "after a death", "twice at once", "cancelled"]
)
def test_stop_ends_the_process_at_every_moment(moment: str) -> None:
    async def run() -> None:
        knobs = {"load_ms": 600_000} if moment == "loading" else {"hang_at": 0}
        worker = await spawn(**knobs)
        asked: asyncio.Task[bytes] | None = None
        if moment == "loading":
            with pytest.raises(DeadlineExceeded):
                await worker.wait_ready(1.0)
        elif moment != "at once":
            await worker.wait_ready(READY_S)
        if moment == "in a step":
            asked = asyncio.create_task(embed_and_forward(worker, REQUEST, PROMPT, 0))
            await until(lambda: any("hanging" in line for line in worker.log_tail))
        if moment == "after a death":
            os.kill(worker.pid, signal.SIGKILL)
            await worker.died
        if moment == "cancelled":
            stop = asyncio.create_task(worker.stop(5))
            await asyncio.sleep(0)
            stop.cancel()
        statuses = await asyncio.gather(*(worker.stop(5) for _ in range(2 if moment == "twice at once" else 1)))
        assert set(statuses) == {-9 if moment == "after a death" else 0}
        assert not alive(worker.pid)
        assert worker.died.done() == (moment == "after a death")
        if asked is not None:
            with pytest.raises(StepsAbandoned):
                await asked

    asyncio.run(run())


def test_a_worker_that_does_not_listen_is_killed() -> None:
    async def run() -> None:
        worker = await spawn()
        await worker.wait_ready(READY_S)
        os.kill(worker.pid, signal.SIGSTOP)
        await until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED)
        assert await worker.stop(0.2) == -signal.SIGKILL
        assert not alive(worker.pid)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():  # noqa: ASYNC110 - log lines come from a callback of the transport
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), READY_S)
