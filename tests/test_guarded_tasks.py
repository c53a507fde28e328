from __future__ import annotations

import asyncio

from ppsmoke.errors import PeerLost
from ppsmoke.guarded_tasks import GuardedTasks


def test_what_a_task_raises_is_told_once_and_its_task_ends_in_order() -> None:
    async def run() -> list[Exception]:
        told: list[Exception] = []
        tasks = GuardedTasks(asyncio.get_running_loop(), told.append)

        async def fail(error: Exception) -> None:
            raise error

        await asyncio.gather(tasks.spawn(fail(PeerLost("gone"))), tasks.spawn(fail(ValueError("wrong"))))
        return told

    assert [str(error) for error in asyncio.run(run())] == ["gone", "wrong"]


def test_cancelling_ends_those_that_are_left_and_tells_nothing() -> None:
    async def run() -> None:
        told: list[Exception] = []
        tasks = GuardedTasks(asyncio.get_running_loop(), told.append)
        waiting = [tasks.spawn(asyncio.sleep(60)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks.cancel()
        done, _ = await asyncio.wait(waiting, timeout=5)
        assert len(done) == 2
        assert all(task.cancelled() for task in done)
        assert told == []

    asyncio.run(run())
