"""The file that a node touches while it hears its orchestrator."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ppsmoke.stage.heard_file import keep_touched


def looks(path: Path, answers: list[bool]) -> list[bool]:
    """Whether the file was touched at each look, for these answers to whether the orchestrator is heard."""
    touched: list[bool] = []
    left = list(answers)
    all_done = asyncio.Event()

    def is_heard() -> bool:
        if len(left) < len(answers):
            touched.append(path.exists() and path.stat().st_mtime > 1)
        if path.exists():
            os.utime(path, (1, 1))
        if not left:
            all_done.set()
            return False
        return left.pop(0)

    async def run() -> None:
        task = asyncio.create_task(keep_touched(str(path), is_heard, every_s=0.001))
        await asyncio.wait_for(all_done.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return touched[: len(answers)]


def test_it_is_touched_while_the_orchestrator_is_heard_and_not_otherwise(tmp_path: Path) -> None:
    assert looks(tmp_path / "heard", [False, True, True, False, True]) == [False, True, True, False, True]


def test_a_place_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    assert looks(tmp_path / "nowhere" / "heard", [True, True]) == [False, False]
