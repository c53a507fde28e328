"""An event loop in a thread of its own, for what must not wait for the main loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ppsmoke.errors import EnvironmentFault
from ppsmoke.waiting import wait_for

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""How long Python code in another thread may keep the interpreter from this one. Python's own 5 ms would be paid once
for each step of a message's way, and be measured as round trip."""

_Answer = TypeVar("_Answer")


class LoopThread:
    """`start` it, `post` and `ask` from other threads, `spawn` from inside, `stop` and thereby join it before the
    process ends: the network library's threads must not meet a loop that is being taken down."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._finished: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    def start(self) -> None:
        """Returns when the loop runs. Raises EnvironmentFault where the system gives no thread or no loop."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            raise self._impossible(error) from None
        self._ready.wait()
        if self._failure is not None:
            raise self._impossible(self._failure) from None

    def post(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Have `call` made in the thread, after what was posted before; False when it is over. From any thread."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def ask(self, call: Callable[[], _Answer], deadline_s: float) -> _Answer:
        """What `call` gives in the thread, for another loop. Raises TimeoutError after `deadline_s` or when it is over,
        and what the call raises."""
        answer: concurrent.futures.Future[_Answer] = concurrent.futures.Future()

        def work() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # nobody waits any more
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        if not self.post(work):
            raise TimeoutError
        return await wait_for(asyncio.wrap_future(answer), deadline_s)

    async def call(self, work: Coroutine[Any, Any, _Answer], deadline_s: float) -> _Answer:
        """What the coroutine `work` gives in the thread's loop, for another loop. Raises as `ask` does."""
        try:
            if self._loop is None:
                raise TimeoutError
            answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        except (RuntimeError, TimeoutError):  # the loop is closed, or was never there
            work.close()
            raise TimeoutError from None
        return await wait_for(asyncio.wrap_future(answer), deadline_s)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task in the thread, ended with it; what it raises is logged. From inside only."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    async def stop(self, deadline_s: float = 2.0) -> None:
        """End the thread's tasks and join it. Never raises; says so when it does not end."""
        thread = self._thread
        if thread is None:
            return
        self.post(self._over.set)
        await asyncio.wait((asyncio.wrap_future(self._finished),), timeout=deadline_s)
        if not self._finished.done():
            log.error("the thread %s did not end within %g s", self._name, deadline_s)
            return
        thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.get_loop()
                runner.run(self._main())
        except OSError as error:  # files, sockets: whoever waits for the start must hear of it
            self._failure = error
        finally:
            self._finished.set_result(None)
            self._ready.set()

    def _impossible(self, error: Exception) -> EnvironmentFault:
        return EnvironmentFault(
            f"the thread {self._name} cannot be started: {error}",
            remedy="Check the limits on open files and processes (ulimit -n, ulimit -u).",
        )

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._over.wait()
        # Here and not only at the loop's end, so that what was cancelled is gone when `stop` returns.
        for task in list(self._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
