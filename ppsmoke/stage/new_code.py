"""New code for a node that runs: fetched and tried beside its work, put in its place once its work was stopped.

The new code begins in the very process, by exec: whoever holds the node, a start script or a parent, sees no end of it,
and a dead-man switch stays armed. It is another node all the same, with a key of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from ppsmoke.errors import DeadlineExceeded, EnvironmentFault
from ppsmoke.messages import FetchCode
from ppsmoke.stage.helper_process import HelperProcess

CODE_PREFIX = "pp-smoke-code-"
"""Of the folders that code is unpacked into; the rest is of its digest."""


@dataclass(frozen=True, slots=True)
class Successor:
    """What takes this process over: `pp-gpu-node` in this environment."""

    environment: Mapping[str, str]

    def begin(self) -> NoReturn:
        """Raises OSError."""
        os.execve(sys.executable, [sys.executable, "-P", "-m", "ppsmoke.node_cli"], dict(self.environment))


class NewCode:
    """One fetch at a time; a further one ends the one before."""

    def __init__(self) -> None:
        self._process: HelperProcess | None = None
        self._paths: dict[str, str] = {}  # by digest: the PYTHONPATH with which that code is what runs

    async def fetch(self, message: FetchCode, deadline_s: float) -> None:
        """Return when it could take this node's place. Raises EnvironmentFault with why it cannot, DeadlineExceeded."""
        await self.close()
        self._process = process = await HelperProcess.begin("ppsmoke.files.code_program")
        try:
            async with asyncio.timeout(deadline_s):
                await process.ask({"file": message.file, "sha256": message.sha256, "folder": message.folder})
                told = await process.answer() or {}
        except TimeoutError:
            raise DeadlineExceeded(f"it was not fetched and tried within {deadline_s:g} s", phase="redeploy") from None
        finally:
            # Its own: a further one may have ended it, and be in its place.
            if self._process is process:
                self._process = None
            await process.end()
        if not isinstance(told.get("python_path"), str):
            why = str(told.get("error") or "the process that fetches it ended without a word")
            raise EnvironmentFault(why, phase="redeploy")
        self._paths[message.sha256] = str(told["python_path"])

    def successor(self, sha256: str, node_key: str) -> Successor | None:
        """The node with that code and that key; None for code that was not fetched."""
        path = self._paths.get(sha256)
        return None if path is None else Successor({**os.environ, "PYTHONPATH": path, "PP_NODE_KEY": node_key})

    async def close(self) -> None:
        """End a fetch in progress. Never raises."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()
