"""A process beside the node that serves one request: it is given a line of JSON and answers with lines of JSON.

What it runs is a program that uses helper_program.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from ppsmoke.waiting import wait_for

_END_S = 5.0
_LINE_LIMIT = 1 << 20


class HelperProcess:
    """Made by `begin`; whoever has begun it ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def begin(cls, module: str) -> Self:
        """Start `python -m module`, in this process's environment."""
        # -P, so that files in the current directory cannot shadow modules.
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
            )
        )

    async def ask(self, request: Mapping[str, Any]) -> None:
        """Give it its request."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # it ended at once; its words follow
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
            await self._process.stdin.drain()

    async def answer(self) -> dict[str, Any] | None:
        """Its next line, empty for one that is no object; None when it says no more."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            return None
        try:
            body = json.loads(line)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    async def status(self) -> int:
        """Its exit status, when it has ended."""
        return await self._process.wait()

    async def end(self) -> None:
        """End it, unless it has ended. Never raises."""
        if self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self._process.kill()
        with suppress(TimeoutError):
            await wait_for(self._process.wait(), _END_S)
