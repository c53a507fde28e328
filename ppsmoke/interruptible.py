"""Asynchronous work that a signal ends, at any moment and in good order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ppsmoke.signal_loop import run_with_signals
from ppsmoke.signals import ending_signals, interruption

T = TypeVar("T")


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run; an ending signal cancels `work`, and Interrupted is raised when that has ended.

    A handler that raises would not do: inside the loop's own callbacks what it raises is swallowed. `work` may take
    the signals over for itself, with the loop's `add_signal_handler`.
    """
    return run_with_signals(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    came: list[int] = []

    def on_signal(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in ending_signals():
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await task
    except asyncio.CancelledError:
        if came:
            raise interruption(came[0]) from None
        raise
