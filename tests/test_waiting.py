"""Waiting with a limit."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import ppsmoke
from ppsmoke.waiting import wait_for

ALONE = {"bootstrap.py"}  # is sent to machines that have nothing else of this package


def test_it_gives_the_result_or_ends_the_wait() -> None:
    async def work() -> None:
        assert await wait_for(asyncio.sleep(0, "done"), 5.0) == "done"
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await wait_for(never, 0.01)
        assert never.cancelled()

    asyncio.run(work())


def test_who_is_cancelled_as_the_result_comes_is_cancelled() -> None:
    async def work() -> None:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(wait_for(result, 5.0))
        await asyncio.sleep(0)
        result.set_result("done")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(work())


def test_nothing_waits_in_the_way_that_forgets_it() -> None:
    package = Path(ppsmoke.__file__).parent
    using = {p.name for p in package.rglob("*.py") if re.search(r"asyncio\.wait_for\(", p.read_text())}
    assert using == ALONE
