"""Worker processes chained over their pipes, as the nodes of a run chain them over QUIC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts
from ppsmoke.roles import layer_range
from ppsmoke.worker_client import WorkerProcess
from tests.equivalence.cases import CONTEXT, Case
from tests.worker.steps import decode_step, embed_and_forward, forward_and_sample, forward_range

MAX_STAGES = 5
READY_S = 300.0
_CASES_AT_ONCE = 4


@dataclass
class Outcome:
    """The tokens, and the rows that left the stages' ends in order, joined, by block boundary."""

    tokens: list[int] = field(default_factory=list)
    rows: dict[int, bytes] = field(default_factory=dict)


class WorkerPool:
    """Five workers for every chain of a session: a new range costs a worker a fifth of a new process.

    A run that fails takes the workers with it; the next run starts others. `env` is added to the workers' environment.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**os.environ, **(env or {})}

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._workers: list[WorkerProcess] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    def run_chain(self, model: str, num_stages: int, cases: Sequence[Case]) -> list[Outcome]:
        """Every case through a chain of `num_stages`, at most MAX_STAGES."""
        return self._runner.run(self._run_chain(model, num_stages, cases))

    async def _run_chain(self, model: str, num_stages: int, cases: Sequence[Case]) -> list[Outcome]:
        try:
            chain = await self._configured(model, num_stages)
            # Several at a time: their steps mix in every stage, and the machine's cores all work.
            gate = asyncio.Semaphore(_CASES_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(chain.run_when(gate, case, f"{index:032x}")) for index, case in enumerate(cases)
                ]
            return [task.result() for task in tasks]
        except BaseException:
            await self._stop()
            raise

    async def _configured(self, model: str, num_stages: int) -> _Chain:
        if not self._workers:
            self._workers = [
                await WorkerProcess.spawn(
                    stage=stage, num_stages=MAX_STAGES, model="", context=CONTEXT, device="CPU", env=self._env
                )
                for stage in range(MAX_STAGES)
            ]
            await asyncio.gather(*(worker.wait_ready(READY_S) for worker in self._workers))
        # The first and the last worker keep these roles at any number of stages.
        workers = [*self._workers[: num_stages - 1], self._workers[-1]]
        with open_gguf(Path(model)) as gguf:
            num_layers = read_model_facts(gguf).num_layers
        ranges = [layer_range(stage, num_stages, num_layers) for stage in range(num_stages)]
        await asyncio.gather(
            *(
                worker.configure(model=model, layer_start=start, layer_end=end, context=CONTEXT)
                for worker, (start, end) in zip(workers, ranges, strict=True)
            )
        )
        return _Chain(workers, [start for start, _ in ranges])

    async def _stop(self) -> None:
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.stop(5) for worker in workers))


@dataclass(frozen=True)
class _Chain:
    """`starts` has each worker's first block."""

    workers: list[WorkerProcess]
    starts: list[int]

    async def run_when(self, gate: asyncio.Semaphore, case: Case, request_id: str) -> Outcome:
        async with gate:
            return await self._run(case, request_id)

    async def _run(self, case: Case, request_id: str) -> Outcome:
        outcome, position = Outcome(), 0
        *earlier, final = case.pieces()
        for piece in earlier:
            rows = await embed_and_forward(self.workers[0], request_id, piece, position)
            assert await self._rest(case, request_id, rows, position, len(piece), False, True, outcome) is None
            position += len(piece)
        rows = await embed_and_forward(self.workers[0], request_id, final, position)
        token = await self._rest(case, request_id, rows, position, len(final), True, True, outcome)
        position += len(final)
        while True:
            assert token is not None
            outcome.tokens.append(token)
            if len(outcome.tokens) == case.count:
                break
            fed = case.continuation[len(outcome.tokens) - 1] if case.continuation else token
            rows = await decode_step(self.workers[0], request_id, fed, position)
            token = await self._rest(case, request_id, rows, position, 1, True, False, outcome)
            position += 1
        for worker in self.workers:
            await worker.reset(request_id)
        return outcome

    async def _rest(
        self,
        case: Case,
        request_id: str,
        rows: bytes,
        position: int,
        count: int,
        last: bool,
        is_prefill: bool,
        outcome: Outcome,
    ) -> int | None:
        """From the rows of the first stage to the token of the last."""
        *middle, final = list(zip(self.workers, self.starts, strict=True))[1:]
        for worker, start in middle:
            outcome.rows[start] = outcome.rows.get(start, b"") + rows
            rows = await forward_range(worker, request_id, rows, position, count, is_prefill)
        worker, start = final
        outcome.rows[start] = outcome.rows.get(start, b"") + rows
        return await forward_and_sample(
            worker, request_id, rows, position, count, is_prefill, sampling=case.sampling, last=last
        )
