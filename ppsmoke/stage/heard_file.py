"""The file whose age tells the dead-man switch of a rented machine how long its node has heard nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

EVERY_S = 1.0


async def keep_touched(path: str, is_heard: Callable[[], bool], every_s: float = EVERY_S) -> None:
    """Touch `path` as long as `is_heard` says that the orchestrator is heard from; runs until it is cancelled.

    A file that cannot be touched is no fault of the stage: the machine then ends as one that hears nothing.
    """
    while True:
        if is_heard():
            with suppress(OSError):
                _touch(path)
        await asyncio.sleep(every_s)


def _touch(path: str) -> None:
    with open(path, "a"):
        os.utime(path)
