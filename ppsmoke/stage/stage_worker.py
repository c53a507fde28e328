"""The worker of a stage as its node has it: its model brought here, started on a hint, configured as the plan says."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ppsmoke.errors import PpError, StageFaulted, WorkerDied
from ppsmoke.messages import ProvisionStage
from ppsmoke.stage.model_share import ShareFetch, is_local
from ppsmoke.stage.progress import Progress, worker_progress
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.worker_client import WorkerProcess, WorkerReady
from ppsmoke.worker_steps import WorkerDeadlines

log = logging.getLogger(__name__)


class StageWorker:
    """Make it inside the event loop. `on_progress` hears of fetching, loading and compiling; `on_death` of the worker's
    end, in its own words if it had any."""

    def __init__(
        self, settings: NodeSettings, *, on_progress: Callable[[Progress], None], on_death: Callable[[PpError], None]
    ) -> None:
        self._settings = settings
        self._on_progress = on_progress
        self._on_death = on_death
        self._share = ShareFetch(stage=settings.stage, num_stages=settings.num_stages, on_progress=on_progress)
        self._model = settings.model  # what the worker was given: a file that is here
        self._process: WorkerProcess | None = None
        self._started = asyncio.Event()
        self._preparing = False

    @property
    def starts_at_once(self) -> bool:
        """Whether its model is here, so that `start` only starts a process."""
        return is_local(self._settings.model)

    @property
    def process(self) -> WorkerProcess:
        """Raises StageFaulted before it was started."""
        if self._process is None:
            raise StageFaulted(f"stage {self._settings.stage} was provisioned before its worker was started")
        return self._process

    async def start(self) -> None:
        """Start it on the range that STAGE and NUM_STAGES imply, so that it loads while the cluster forms.

        Of a model that is elsewhere the stage's share is fetched before. Raises WorkerDied, and what `ShareFetch` does.
        """
        settings = self._settings
        if not self.starts_at_once:
            self._model = await self._share.of_stage(settings.model, settings.ready_timeout)
        self._process = await WorkerProcess.spawn(
            stage=settings.stage,
            num_stages=settings.num_stages,
            model=self._model,
            context=settings.context,
            device=settings.device or None,
            stub=settings.stub,
            on_log=lambda line: log.info("worker: %s", line),
            on_progress=self._worker_told,
            deadlines=WorkerDeadlines(
                load_s=settings.ready_timeout, prefill_s=settings.prefill_timeout, step_s=settings.step_timeout
            ),
        )
        log.info("worker started, pid %d", self._process.pid)
        self._on_progress(Progress("starting its worker", "loading"))
        self._process.died.add_done_callback(self._died)
        self._process.when_ready(self._loaded)
        self._started.set()

    async def prepare(self, message: ProvisionStage) -> WorkerReady:
        """Ready for the plan's range and facts. Raises as WorkerProcess does, and StageFaulted for other facts."""
        settings = self._settings
        self._preparing = True
        if not self.starts_at_once:
            # Bounded by the fetch's own deadline; a fetch that fails is a fault of the stage.
            await self._started.wait()
        ready = await self.process.wait_ready(settings.ready_timeout)
        wanted = (message.layer_start, message.layer_end_exclusive)
        model = message.gguf_source.paths[0] if message.gguf_source.paths else self._model
        if (ready.layer_start, ready.layer_end) != wanted:
            log.info("the plan gives blocks %d..%d, reconfiguring the worker", *wanted)
            if not message.gguf_source.paths and not self.starts_at_once:
                model = await self._share.of_layers(settings.model, *wanted, settings.ready_timeout)
        ready = await self.process.configure(
            model=model, layer_start=wanted[0], layer_end=wanted[1], context=message.model.max_seq_len
        )
        _check_facts(message, ready)
        return ready

    def abandon(self) -> None:
        """Give a step in progress up, whoever waits for it."""
        if self._process is not None:
            self._process.steps.abandon()

    def leave(self) -> None:
        """The data thread is done with the worker."""
        if self._process is not None:
            self._process.steps.leave()

    async def stop(self, grace_s: float) -> None:
        """End a fetch and the worker."""
        await self._share.close()
        if self._process is not None:
            await self._process.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL to the worker's process group, from any thread, when nothing else works any more."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _worker_told(self, fields: Mapping[str, Any]) -> None:
        progress = worker_progress(fields)
        if progress is not None:
            self._on_progress(progress)

    def _loaded(self) -> None:
        """Nothing is to be done before the plan comes, which is when all have joined."""
        if not self._preparing:
            self._on_progress(Progress("waiting for the other stages", "loaded"))

    def _died(self, died: asyncio.Future[WorkerDied]) -> None:
        if not died.cancelled():
            # Its own words say more than its exit status.
            error = self.process.fatal or died.result()
            log.error("%s", error)
            self._on_death(error)


def _check_facts(message: ProvisionStage, ready: WorkerReady) -> None:
    planned = {"num_layers": message.model.num_layers, "hidden_dim": message.model.hidden_dim}
    for name, value in planned.items():
        if ready.facts.get(name) != value:
            raise StageFaulted(
                f"stage {message.stage_index} reads a model with {name} {ready.facts.get(name)}, the plan says {value}",
                stage=message.stage_index,
                phase="prepare",
            )
