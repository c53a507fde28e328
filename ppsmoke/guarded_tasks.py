"""Tasks that nobody waits for, whose failures are told all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class GuardedTasks:
    """In `loop`. `failed` is called there with whatever a task raised, while it is being handled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: Callable[[Exception], None]) -> None:
        self._loop = loop
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`. The task raises nothing but its cancellation."""
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all that are left."""
        for task in list(self._tasks):
            task.cancel()

    async def end(self, limit_s: float) -> None:
        """Cancel all that are left, and wait until they have let go of what they had in hand, `limit_s` seconds at
        most."""
        self.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=limit_s)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._failed(error)
