"""The orchestrator of a rented run is killed outright: its machines end themselves, or a teardown ends them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ppsmoke.vast.teardown import choose, find_leftovers, tear_down
from tests.vast.emulated import Emulated, emulated
from tests.vast.rented import SCALE, machines

PATIENCE_S = 90.0


@contextmanager
def orchestrator(cloud: Emulated, folder: Path, orphan_s: int) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    arguments = [sys.executable, "-m", "tests.vast.rent_alone", cloud.url, str(folder), str(orphan_s)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], start: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(start):
            return
    pytest.fail("".join(said))


async def until_empty(cloud: Emulated) -> list[str]:
    ends = time.monotonic() + PATIENCE_S
    while True:
        left = cloud.left()
        if not left or time.monotonic() > ends:
            return left
        await asyncio.sleep(0.1)


def test_machines_of_a_killed_orchestrator_end_themselves(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with emulated(scale=SCALE, nodes=nodes) as cloud:
            with orchestrator(cloud, tmp_path / "run", 5) as process:
                await asyncio.to_thread(read_until, process, "text ")
                process.kill()
                process.wait()
                assert len(cloud.left()) == 2
                return await until_empty(cloud)

    with machines(tmp_path) as nodes:
        assert asyncio.run(scenario()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    ["stage 0: instance", "Planning -> Provisioning", "Provisioning -> WaitingReady", "WaitingReady -> Running"],
)
def test_a_kill_in_any_phase_leaves_no_machine_after_the_orphan_timeout(phase: str, tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with emulated(scale=SCALE, nodes=nodes) as cloud:
            with orchestrator(cloud, tmp_path / "run", 5) as process:
                await asyncio.to_thread(read_until, process, phase)
                process.kill()
                process.wait()
                return await until_empty(cloud)

    with machines(tmp_path) as nodes:
        assert asyncio.run(scenario()) == []


def test_machines_that_hear_their_orchestrator_live_longer_than_the_orphan_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated(scale=SCALE, nodes=nodes) as cloud:
            with orchestrator(cloud, tmp_path / "run", 8) as process:
                for _ in range(28):  # tokens, at least 0.4 s each
                    await asyncio.to_thread(read_until, process, "text ")
                assert len(cloud.left()) == 2
                process.terminate()
                await asyncio.to_thread(read_until, process, "status 143")
                assert cloud.left() == []

    with machines(tmp_path) as nodes:
        asyncio.run(scenario())


def test_a_teardown_ends_what_a_killed_orchestrator_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated(scale=SCALE, nodes=nodes) as cloud, cloud.client() as client:
            with orchestrator(cloud, tmp_path / "run", 600) as process:
                await asyncio.to_thread(read_until, process, "text ")
                process.kill()
                process.wait()
            runs = await find_leftovers(client, tmp_path / "run" / "journal", url=cloud.url, account=None)
            choice = choose(runs, label=None, everything=False)
            assert [len(run.instances) for run in choice.chosen] == [2]
            torn = await tear_down(client, choice.chosen, times=cloud.times())
            assert torn.unverified == ()
            assert cloud.left() == []

    with machines(tmp_path) as nodes:
        asyncio.run(scenario())
