"""No stage is ready, and no prompt goes in, before the ways of the chain were measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ppsmoke.messages import Feedback
from ppsmoke.orchestrator import edge_news
from ppsmoke.paths.probe import Measured
from ppsmoke.run_events import EdgeMeasured, PromptInjected, RunEvent, StageIsReady
from ppsmoke.stage import neighbour_paths
from ppsmoke.stage.node import StageNode
from ppsmoke.transport import Mesh
from tests.cluster.test_chain_in_process import Watcher, run_chain
from tests.transport.kit import eventually

STAGES = 3
LONGER_S = 0.3


def told_at(events: list[RunEvent], kind: type[RunEvent]) -> list[int]:
    return [at for at, event in enumerate(events) if isinstance(event, kind)]


def test_every_way_is_measured_before_its_stage_is_ready_and_the_prompt_goes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    might_be_ready: list[StageNode] = []
    really, emit_ready = neighbour_paths.measure, StageNode._emit_ready

    async def all_is_done_but_this(node: StageNode, run_id: str) -> None:
        might_be_ready.append(node)
        await emit_ready(node, run_id)

    async def late_to_a_neighbour(mesh: Mesh, *way: Any) -> Measured:
        await eventually(lambda: len(might_be_ready) == STAGES)
        await asyncio.sleep(LONGER_S)
        return await really(mesh, *way)

    async def late_to_a_stage(mesh: Mesh, *way: Any) -> Measured:
        await eventually(lambda: len(told_at(watcher.events, StageIsReady)) == STAGES)
        await asyncio.sleep(LONGER_S)
        return await really(mesh, *way)

    monkeypatch.setattr(StageNode, "_emit_ready", all_is_done_but_this)
    monkeypatch.setattr(neighbour_paths, "measure", late_to_a_neighbour)
    monkeypatch.setattr(edge_news, "measure", late_to_a_stage)
    result, _ = run_chain(
        STAGES, Feedback.DIRECT, tmp_path, model="stub:layers=3", prompt="Hi", max_tokens=3, watcher=watcher
    )
    assert result.error is None
    told = watcher.events
    measured = {(event.source, event.target): at for at, event in enumerate(told) if isinstance(event, EdgeMeasured)}
    ready = {event.stage: at for at, event in enumerate(told) if isinstance(event, StageIsReady)}
    ring = {(0, 1), (1, 2), (2, 0), (2, None)}
    assert set(measured) == ring | {(None, stage) for stage in range(STAGES)}
    for source, target in ring:
        assert measured[source, target] < ready[source], (source, target)
    assert max(measured.values()) < told_at(told, PromptInjected)[0]
