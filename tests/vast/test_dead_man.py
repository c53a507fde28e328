"""Machines that were rented and then forgotten end themselves: a run's own requests on the emulator's processes."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from ppsmoke.vast.lease_labels import stage_label
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.vast.stage_request import create_request
from tests.vast.emulated import RUN_ID, Emulated, emulated
from tests.vast.test_stage_request import TERMS
from tests.vast_emulator.nodes import ProcessNodes

PATIENCE_S = 60.0
NODE = """#!/bin/sh
[ "$1" = --version ] && { echo "pp-gpu-node 1.2.3"; exit; }
echo "$STAGE of $NUM_STAGES" >"FOLDER/stage-$STAGE"
[ "$STAGE" = 1 ] && exit 4
exec sleep 300
"""


async def until_empty(cloud: Emulated) -> list[str]:
    end = time.monotonic() + PATIENCE_S
    while True:
        left = cloud.left()
        if not left or time.monotonic() > end:
            return left
        await asyncio.sleep(0.1)


def test_machines_whose_orchestrator_is_gone_end_themselves(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pp-gpu-node").write_text(NODE.replace("FOLDER", str(tmp_path)))
    (programs / "pp-gpu-node").chmod(0o755)
    nodes = ProcessNodes(f"{programs}:{os.environ['PATH']}")

    async def scenario() -> None:
        async with emulated(nodes=nodes) as cloud, cloud.client() as client:
            terms = replace(TERMS, run_id=RUN_ID, num_stages=2, orphan_timeout_s=3, vast_url=cloud.url)
            offers = {offer.machine_id: offer for offer in await client.search_offers({})}
            for stage, offer in enumerate(list(offers.values())[:2]):
                need = StageNeed(stage, 8000, 10, Traffic(0.5))
                label = stage_label(RUN_ID, stage, "n")
                request = create_request(terms, need, label=label, node_key=bytes([stage]) * 32)
                await client.create(offer.id, request)
            assert await until_empty(cloud) == []

    try:
        asyncio.run(scenario())
    finally:
        nodes.close()
    told = sorted(path.read_text() for path in tmp_path.glob("stage-*"))
    assert told == ["0 of 2\n", "1 of 2\n"]
