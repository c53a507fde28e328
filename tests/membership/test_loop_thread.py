from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ppsmoke.membership.loop_thread import LoopThread
from tests.transport.kit import PATIENCE_S, run_clean


def test_what_is_posted_is_done_in_order_in_the_thread() -> None:
    async def work() -> None:
        thread = LoopThread("test")
        thread.start()
        seen: list[tuple[int, str]] = []
        for number in range(20):
            assert thread.post(lambda n=number: seen.append((n, threading.current_thread().name)))
        assert await thread.ask(lambda: len(seen), PATIENCE_S) == 20
        assert seen == [(number, "test") for number in range(20)]
        await thread.stop()

    run_clean(work())


def test_an_answer_may_be_an_error() -> None:
    async def work() -> None:
        thread = LoopThread("test")
        thread.start()
        with pytest.raises(ZeroDivisionError):
            await thread.ask(lambda: 1 / 0, PATIENCE_S)
        await thread.stop()

    run_clean(work())


def test_stopping_ends_tasks_and_thread_and_later_posts_are_told() -> None:
    async def work() -> None:
        thread = LoopThread("test")
        thread.start()
        ended: list[str] = []

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("task")

        await thread.ask(lambda: thread.spawn(forever(), "forever"), PATIENCE_S)
        await thread.ask(lambda: None, PATIENCE_S)
        await thread.stop()
        assert ended == ["task"]
        assert "test" not in [t.name for t in threading.enumerate()]
        assert not thread.post(lambda: None)
        with pytest.raises(TimeoutError):
            await thread.ask(lambda: None, PATIENCE_S)
        await thread.stop()

    run_clean(work())


def test_a_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        thread = LoopThread("test")
        thread.start()

        async def fail() -> None:
            raise RuntimeError("task bug")

        await thread.ask(lambda: thread.spawn(fail(), "the failing task"), PATIENCE_S)
        await thread.ask(lambda: None, PATIENCE_S)
        await thread.stop()

    run_clean(work())
    assert "the failing task failed" in caplog.text
    assert "task bug" in caplog.text


def test_the_thread_runs_while_the_main_loop_computes() -> None:
    async def work() -> None:
        thread = LoopThread("test")
        thread.start()
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.01)

        await thread.ask(lambda: thread.spawn(tick(), "tick"), PATIENCE_S)
        began = time.monotonic()
        while time.monotonic() < began + 1.0:
            pass
        during = [at for at in ticks if began < at < began + 1.0]
        assert len(during) > 10
        await thread.stop()

    run_clean(work())
