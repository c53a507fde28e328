from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault, StageDied
from ppsmoke.orchestrator.children import ChildNode


def test_a_log_that_cannot_be_written_is_no_reason_for_a_node(tmp_path: Path) -> None:
    (tmp_path / "stage-1.log").mkdir()

    async def start() -> None:
        child = ChildNode(1, tmp_path / "stage-1.log")
        with pytest.raises(EnvironmentFault, match=r"stage-1\.log cannot be written"):
            await child.start({})
        assert child.pid is None
        await child.end()

    asyncio.run(start())


@pytest.mark.parametrize(
    ("log", "status", "what", "remedy"),
    [
        (
            "error: The orchestrator is gone: it is silent (phase: run) [orchestrator_lost]",
            4,
            "ended because it had not heard from this process: The orchestrator is gone: it is silent (phase: run)",
            "stood still",
        ),
        ("Killed.", 4, "ended because it had not heard from this process: status 4", "overloaded"),
        (
            "error: STAGE is 7 [bad_node_environment]",
            2,
            "ended because its environment was wrong: STAGE is 7",
            "its log",
        ),
        (
            "error: Another token [join_refused]",
            3,
            "ended because it was not let into the run: Another token",
            "its log",
        ),
        ("error: The worker died [worker_died]", 1, "exited with status 1", "its log"),
    ],
)
def test_a_nodes_end_is_told_in_words(log: str, status: int, what: str, remedy: str, tmp_path: Path) -> None:
    async def end() -> StageDied:
        child = ChildNode(0, tmp_path / "stage-0.log", ("/bin/sh", "-c", 'echo "$SAID" >&2; exit "$STATUS"'))
        await child.start({"SAID": log, "STATUS": str(status)})
        await asyncio.wait_for(asyncio.shield(child.exited), 30)
        await child.end()
        return child.death()

    death = asyncio.run(end())
    assert death.what == f"stage 0's node {what}"
    assert remedy in (death.remedy or "")
