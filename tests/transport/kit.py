"""Meshes on loopback for tests."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.transport.endpoint import Endpoint, node_id_of
from ppsmoke.transport.events import MeshEvents
from ppsmoke.transport.hello import Refused
from ppsmoke.transport.mesh import Mesh

RUN_ID = "ab" * 16
TOKEN = b"join token of the test run"
VERSION = "0.1.0"
PATIENCE_S = 20.0
"""How long a test waits for what must happen; the machine may be busy."""


def key_of(name: str) -> bytes:
    return hashlib.sha256(f"test node {name}".encode()).digest()


def id_of(name: str) -> str:
    return node_id_of(key_of(name))


NAMES = {id_of(name): name for name in ["orchestrator", *(f"stage {i}" for i in range(8)), "a", "b", "c", "stranger"]}


def name_of(node_id: str) -> str:
    return NAMES.get(node_id, f"node {node_id[:8]}")


class Recorder(MeshEvents):
    """Keeps every event and lets a test wait for one."""

    def __init__(self) -> None:
        self.up: list[str] = []
        self.down: list[tuple[str, PpError]] = []
        self.messages: list[tuple[str, str, dict[str, Any]]] = []
        self._changed = asyncio.Event()

    def link_up(self, node_id: str) -> None:
        self.up.append(name_of(node_id))
        self._changed.set()

    def link_down(self, node_id: str, reason: PpError) -> None:
        self.down.append((name_of(node_id), reason))
        self._changed.set()

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        self.messages.append((name_of(node_id), channel, body))
        self._changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Peer:
    """A mesh and what it reported."""

    def __init__(self, mesh: Mesh, events: Recorder) -> None:
        self.mesh = mesh
        self.events = events
        self.id = mesh.node_id

    def knows(self, *others: Peer) -> None:
        for other in others:
            self.mesh.learn_address(other.id, other.mesh.endpoint.ticket())


@asynccontextmanager
async def peer(name: str, **options: Any) -> AsyncIterator[Peer]:
    endpoint = await Endpoint.bind(key_of(name), loopback_only=True)
    events = Recorder()
    settings: dict[str, Any] = {
        "run_id": RUN_ID,
        "join_token": TOKEN,
        "tool_version": VERSION,
        "name_of": name_of,
        "admit": admit_all,
        "events": events,
    }
    mesh = Mesh(endpoint, **{**settings, **options})
    mesh.start()
    try:
        yield Peer(mesh, events)
    finally:
        await mesh.close("test over")


async def eventually(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for what no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def admit_all(node_id: str) -> Refused | None:
    return None


def run_clean(work: Coroutine[Any, Any, None], seconds: float = 120.0) -> None:
    """Run a test and prove that it leaves no task behind."""

    async def checked() -> None:
        async with asyncio.timeout(seconds):
            await work
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks left behind: {left}"

    asyncio.run(checked())
