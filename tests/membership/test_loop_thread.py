from __future__ import annotations

import asyncio
import errno
import threading
import time

import pytest

from ppsmoke.errors import EnvironmentFault
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


def test_a_system_that_gives_no_loop_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more_files(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def work() -> None:
        thread = LoopThread("test")
        monkeypatch.setattr(asyncio, "new_event_loop", no_more_files)
        monkeypatch.setattr(asyncio.events, "new_event_loop", no_more_files)
        with pytest.raises(EnvironmentFault, match=r"the thread test cannot be started: .*Too many open files"):
            thread.start()
        await thread.stop()

    run_clean(work())


def test_a_system_that_gives_no_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> None:
        thread = LoopThread("test")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(EnvironmentFault, match="can't start new thread"):
                thread.start()
        await thread.stop()

    run_clean(work())
