"""Peers in processes of their own that leave."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ppsmoke.errors import PeerLeft
from tests.transport.kit import PATIENCE_S, Peer, peer, run_clean

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def child(name: str, target: Peer) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transport.helper_node", name, target.mesh.endpoint.ticket(),
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"linked\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        process._transport.close()  # type: ignore[attr-defined]


def test_an_orderly_leave_of_a_process_is_known_with_its_reason() -> None:
    async def work() -> None:
        async with peer("orchestrator") as own, child("stage 1", own) as process:
            await own.events.until(lambda: own.events.up == ["stage 1"])
            assert process.stdin is not None
            process.stdin.write(b"out of memory\n")
            await own.events.until(lambda: bool(own.events.down))
            ((_, reason),) = own.events.down
            assert isinstance(reason, PeerLeft)
            assert reason.what == "stage 1 left: out of memory"
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0

    run_clean(work())


def test_a_leave_waits_until_a_slow_peer_has_what_was_sent_before() -> None:
    async def work() -> None:
        async with peer("orchestrator") as own, child("stage 1", own) as process:
            await own.events.until(lambda: own.events.up == ["stage 1"])
            process.send_signal(signal.SIGSTOP)
            (stage,) = own.mesh.linked()
            await own.mesh.send(stage, "control", {"big": "x" * 900_000})
            closing = asyncio.create_task(own.mesh.close("the run is over", deadline_s=30))
            await asyncio.sleep(0.3)
            process.send_signal(signal.SIGCONT)
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
            assert line == b"1 orchestrator left: the run is over\n"
            await closing

    run_clean(work())
