"""A machine whose image does not bring the tool installs it: this checkout's wheel, and what it needs from an index.

The very code of the caller, as --ship sends it, is tested with the redeploying of it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from ppsmoke.vast.run import RentedRun
from tests.models.kit import file_answer, file_server
from tests.vast.bare_machines import SYSTEM_PATH, bare_python
from tests.vast.emulated import emulated
from tests.vast.rented import DEADLINES, SCALE, STUB, Watcher, rental_options, stub_options
from tests.vast_emulator.nodes import ProcessNodes

CHECKOUT = Path(__file__).parents[2]


def make_wheel(folder: Path) -> Path:
    made = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT)]
    subprocess.run(made, check=True, timeout=300)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_a_machine_installs_the_wheel_it_is_told_and_serves(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheel")
    options = stub_options(tmp_path, 2, deadlines=replace(DEADLINES, join=600.0))
    watcher = Watcher()

    async def scenario() -> None:
        async with emulated(scale=SCALE, nodes=nodes) as cloud, cloud.client() as client:
            package = f"{files.url}/{wheel.name}"
            rental = await rental_options(
                cloud.url, SCALE, client, options, tmp_path, package=package, orphan_timeout_s=900
            )
            result = await RentedRun(options, rental, watcher, client).execute()
            assert result.error is None, "\n".join([repr(result.error), *watcher.lines])
            assert result.tokens == stub_tokens(stub_encode("hello"), 8, parse_stub_model(STUB))
            assert cloud.left() == []

    nodes = ProcessNodes(f"{bare_python(tmp_path / 'bin')}:{SYSTEM_PATH}")
    try:
        with file_server() as files:
            files.answers[f"/{wheel.name}"] = file_answer(wheel.read_bytes())
            asyncio.run(scenario())
            assert len(files.requests) >= 2
    finally:
        nodes.close()
    logs = [path.read_text() for path in (tmp_path / "logs").glob("instance-*.log")]
    assert len(logs) == 2
    assert all(f"pp-smoke-run: installing {files.url}/{wheel.name}" in log for log in logs)
