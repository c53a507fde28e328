"""Waiting for the network library's calls in a plain thread, without an event loop in between.

The library's Python glue asks the running loop of its thread for two things only: a future, and to have it resolved
from another thread. `BlockingCalls` is a loop that can do exactly that: a call costs the thread one wait on a queue
instead of turns of a selector.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from queue import SimpleQueue
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class CallsCancelled(Exception):
    """`cancel` was called; the call in progress was dropped."""

    def __init__(self) -> None:
        super().__init__("it was told to stop")


class BlockingCalls:
    """One thread at a time runs calls; `cancel` may come from any other and ends the present call and every later one.

    A dropped read has taken nothing; a dropped write may have sent a part.
    """

    def __init__(self) -> None:
        self.cancelled = False
        self._news: SimpleQueue[_Reply | None] = SimpleQueue()
        self._thread = 0

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Wait for `call` as long as it takes. Raises what it raises, CallsCancelled."""
        if self.cancelled:
            call.close()
            raise CallsCancelled
        self._thread = threading.get_ident()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            while True:
                awaited = call.send(None)
                while not self.cancelled and self._news.get() is not awaited:
                    pass  # what is left of a dropped call
                if self.cancelled:
                    raise CallsCancelled
        except StopIteration as done:
            return cast(_T, done.value)
        finally:
            call.close()
            asyncio._set_running_loop(outer)

    def cancel(self) -> None:
        self.cancelled = True
        self._news.put(None)

    # ---- what the library's glue takes for an event loop

    def create_future(self) -> _Reply:
        return _Reply()

    def call_soon_threadsafe(self, resolve: Callable[[_Reply, int], None], reply: _Reply, code: int) -> None:
        resolve(reply, code)
        if threading.get_ident() != self._thread:
            self._news.put(reply)


class _Reply:
    """The future of one poll."""

    def __init__(self) -> None:
        self._code: int | None = None

    def cancelled(self) -> bool:
        return False

    def set_result(self, code: int) -> None:
        self._code = code

    def __await__(self) -> Generator[_Reply, None, int]:
        while self._code is None:
            yield self
        return self._code
