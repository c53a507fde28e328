"""Waiting with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_Result = TypeVar("_Result")


async def wait_for(awaited: Awaitable[_Result], limit_s: float) -> _Result:
    """What `awaited` gives. Raises TimeoutError after `limit_s` seconds, having cancelled it.

    asyncio's own, before Python 3.12, forgets that its caller was cancelled where the result came at that moment: a
    process that was told to end goes on.
    """
    async with asyncio.timeout(limit_s):
        return await awaited
