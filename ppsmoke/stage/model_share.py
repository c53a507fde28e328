"""A node's model: a file that is here, or the stage's share of one that has to be fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppsmoke.errors import DeadlineExceeded, ModelFetchFailed, PpError, error_class
from ppsmoke.figures import part_of_size
from ppsmoke.stage.helper_process import HelperProcess
from ppsmoke.stage.progress import Progress
from ppsmoke.stub_model import is_stub_model

_SHOW_EVERY = 0.02  # of the share


def is_local(model: str) -> bool:
    """Whether a worker can be given `model` as it is: a path, or the stub that was asked for."""
    return is_stub_model(model) or model.startswith("/") or Path(model).exists()


class ShareFetch:
    """One fetch at a time by a process of its own. `on_progress` hears of it at every fiftieth of the way."""

    def __init__(self, *, stage: int, num_stages: int, on_progress: Callable[[Progress], None]) -> None:
        self._stage = stage
        self._num_stages = num_stages
        self._on_progress = on_progress
        self._process: HelperProcess | None = None

    async def of_stage(self, model: str, deadline_s: float) -> str:
        """The path of a file with the blocks that this stage's index implies.

        Raises ModelFetchFailed or what else the model cannot be had for, DeadlineExceeded.
        """
        return await self._fetch({"model": model, "stage": self._stage, "num_stages": self._num_stages}, deadline_s)

    async def of_layers(self, model: str, layer_start: int, layer_end_exclusive: int, deadline_s: float) -> str:
        """The same for a block range. What is on this disk already is not fetched again."""
        return await self._fetch({"model": model, "layers": [layer_start, layer_end_exclusive]}, deadline_s)

    async def close(self) -> None:
        """End a fetch in progress. What it fetched is kept. Never raises."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    async def _fetch(self, request: Mapping[str, Any], deadline_s: float) -> str:
        self._process = process = await HelperProcess.begin("ppsmoke.models.share_program")
        try:
            async with asyncio.timeout(deadline_s):
                return await self._result(process, request)
        except TimeoutError:
            raise DeadlineExceeded(
                f"stage {self._stage} did not get its share of {request['model']} within {deadline_s:g} s",
                stage=self._stage,
                phase="fetch",
                remedy="Choose machines with a faster network, or raise --ready-timeout.",
            ) from None
        finally:
            # Its own: when it was cancelled another one may have begun.
            if self._process is process:
                self._process = None
            await process.end()

    async def _result(self, process: HelperProcess, request: Mapping[str, Any]) -> str:
        await process.ask(request)
        shown = -1.0
        while (body := await process.answer()) is not None:
            if isinstance(body.get("path"), str):
                return str(body["path"])
            if isinstance(body.get("error"), dict):
                raise self._error(body["error"])
            done, total = body.get("done"), body.get("total")
            if isinstance(done, int) and isinstance(total, int) and total > 0 and done / total >= shown + _SHOW_EVERY:
                shown = done / total
                text = f"fetching {part_of_size(done, total)}"
                self._on_progress(Progress(text, "fetching", done, total, "bytes"))
        status = await process.status()
        raise ModelFetchFailed(
            f"stage {self._stage}'s fetch of {request['model']} ended with status {status} and without a result",
            stage=self._stage,
            phase="fetch",
        )

    def _error(self, body: Mapping[str, Any]) -> PpError:
        kind = error_class(str(body.get("code"))) or ModelFetchFailed
        return kind(
            f"stage {self._stage}: {body.get('message')}", remedy=body.get("remedy"), stage=self._stage, phase="fetch"
        )
