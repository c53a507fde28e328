"""Peers in processes of their own that are stopped, killed or leave."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ppsmoke.errors import PeerLeft, PeerLost
from tests.transport.kit import PATIENCE_S, Peer, peer, run_clean

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def child(name: str, target: Peer, silence_limit_s: float = 60.0) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transport.helper_node", name, str(silence_limit_s),
        target.mesh.endpoint.ticket(), cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
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


def test_a_stopped_process_falls_silent_and_may_come_back() -> None:
    async def work() -> None:
        async with peer("orchestrator", silence_limit_s=2.0) as own, child("stage 1", own) as process:
            await own.events.until(lambda: own.events.up == ["stage 1"])
            process.send_signal(signal.SIGSTOP)
            await own.events.until(lambda: bool(own.events.down))
            ((name, reason),) = own.events.down
            assert name == "stage 1"
            assert type(reason) is PeerLost
            assert reason.what.startswith("the link to stage 1 is lost: it was silent for 2.")
            process.send_signal(signal.SIGCONT)

    run_clean(work())


def test_a_process_that_was_stopped_itself_does_not_accuse_its_peer() -> None:
    async def work() -> None:
        async with peer("orchestrator") as own, child("stage 1", own, silence_limit_s=1.5) as process:
            await own.events.until(lambda: own.events.up == ["stage 1"])
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2.5)
            process.send_signal(signal.SIGCONT)
            for number in range(3):
                await asyncio.sleep(0.5)
                assert not own.events.down
                await own.mesh.send(next(iter(own.mesh.linked())), "control", {"number": number})
            assert not own.events.down

    run_clean(work())


def test_a_killed_process_is_noticed_through_its_silence() -> None:
    async def work() -> None:
        async with peer("orchestrator", silence_limit_s=2.0) as own, child("stage 1", own) as process:
            await own.events.until(lambda: own.events.up == ["stage 1"])
            process.kill()
            began = asyncio.get_running_loop().time()
            await own.events.until(lambda: bool(own.events.down), 10.0)
            took_s = asyncio.get_running_loop().time() - began
            assert took_s < 8.0, "the library alone would take 30 s"
            assert "silent for" in own.events.down[0][1].what
            assert not own.mesh.linked()

    run_clean(work())


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


def test_a_round_trip_is_measured() -> None:
    async def work() -> None:
        async with peer("a", silence_limit_s=2.0) as a, peer("b") as b:
            a.knows(b)
            await a.mesh.link(b.id)
            async with asyncio.timeout(PATIENCE_S):
                while a.mesh.rtt_s(b.id) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            rtt = a.mesh.rtt_s(b.id)
            assert rtt is not None
            assert 0.0 < rtt < 5.0
            assert a.mesh.rtt_s("0" * 64) is None

    run_clean(work())
