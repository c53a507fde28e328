"""A node's worker, as the node is told of it."""

from __future__ import annotations

import asyncio

from ppsmoke.errors import PpError
from ppsmoke.stage.progress import Progress
from ppsmoke.stage.settings import parse_settings
from ppsmoke.stage.stage_worker import StageWorker

SETTINGS = parse_settings(
    {
        "STAGE": "0",
        "NUM_STAGES": "2",
        "SEED_ADDR": "endpointabc",
        "PP_RUN_ID": "ab" * 16,
        "PP_JOIN_TOKEN": "0123",
        "PP_MODEL": "stub:layers=4",
        "PP_WORKER_STUB": "1",
    }
)


def test_a_worker_that_is_ready_before_the_plan_comes_is_told_to_wait() -> None:
    async def scenario() -> list[Progress]:
        told: list[Progress] = []
        loaded = asyncio.Event()

        def hear(progress: Progress) -> None:
            told.append(progress)
            if progress.state == "loaded":
                loaded.set()

        def die(error: PpError) -> None:
            raise AssertionError from error

        worker = StageWorker(SETTINGS, on_progress=hear, on_death=die)
        try:
            await worker.start()
            await asyncio.wait_for(loaded.wait(), 60.0)
        finally:
            await worker.stop(5.0)
        return told

    told = asyncio.run(scenario())
    assert told[0] == Progress("starting its worker", "loading")
    assert told[-1] == Progress("waiting for the other stages", "loaded")
