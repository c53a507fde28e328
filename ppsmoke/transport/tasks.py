"""Ending background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


async def stop_tasks(tasks: Iterable[asyncio.Task[None]], deadline_s: float = 2.0) -> None:
    """Cancel `tasks` (the calling one left out) and wait for their end, `deadline_s` seconds at most."""
    current = asyncio.current_task()
    others = [task for task in tasks if task is not current and not task.done()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=deadline_s)
