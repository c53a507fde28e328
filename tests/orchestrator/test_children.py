from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault
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
