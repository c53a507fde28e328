"""N worker processes chained over their pipes, and the whole model in one process beside them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ppsmoke.roles import layer_range
from ppsmoke.worker_client import WorkerProcess
from ppsmoke.worker_protocol import GREEDY, Sampling

READY_S = 300.0
_CASES_AT_ONCE = 4


@dataclass(frozen=True)
class Case:
    """What to ask: a prompt, how to cut it (lengths of the parts; () is one piece), and the sampling."""

    prompt: tuple[int, ...]
    parts: tuple[int, ...] = ()
    sampling: Sampling = GREEDY
    count: int = 48

    def pieces(self) -> list[tuple[int, ...]]:
        pieces, first = [], 0
        for length in self.parts:
            pieces.append(self.prompt[first : first + length])
            first += length
        return [piece for piece in (*pieces, self.prompt[first:]) if piece]


@dataclass
class Outcome:
    """The tokens, and the rows that left the stages' ends in order, joined, by block boundary."""

    tokens: list[int]
    rows: dict[int, bytes] = field(default_factory=dict)


def run_chain(
    model: str, num_stages: int, num_layers: int, cases: Sequence[Case], env: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Every case through one chain of `num_stages` processes, context 512."""
    return asyncio.run(_run_chain(model, num_stages, num_layers, cases, env))


def run_reference(model: str, cases: Sequence[Case], env: Mapping[str, str] | None = None) -> list[list[int]]:
    """Every case in one process that has the whole model."""
    return asyncio.run(_run_reference(model, cases, env))


def varied_prompts(vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Six shapes, in tokens that every vocabulary has."""

    def spread(count: int, stride: int) -> tuple[int, ...]:
        return tuple(10 + (index * stride) % (vocab_size - 10) for index in range(count))

    return {
        "one token": (17,),
        "short": spread(5, 7),
        "one less than a pass": spread(31, 11),
        "exactly a pass": spread(32, 13),
        "repeated": (20, 21, 22) * 15,
        "over an attention step": spread(141, 17),
    }


async def _run_chain(
    model: str, num_stages: int, num_layers: int, cases: Sequence[Case], env: Mapping[str, str] | None
) -> list[Outcome]:
    workers = [
        await WorkerProcess.spawn(
            stage=stage,
            num_stages=num_stages,
            model=model,
            context=512,
            device="CPU",
            env={**os.environ, **(env or {})},
        )
        for stage in range(num_stages)
    ]
    try:
        for stage, worker in enumerate(workers):
            await worker.wait_ready(READY_S)
            start, end = layer_range(stage, num_stages, num_layers)
            await worker.configure(model=model, layer_start=start, layer_end=end, context=512)
        # Several at a time: their steps mix in every stage, and the machine's cores all work.
        gate = asyncio.Semaphore(_CASES_AT_ONCE)

        async def run(index: int, case: Case) -> Outcome:
            async with gate:
                return await _run_case(workers, num_layers, case, f"case {index}")

        return list(await asyncio.gather(*(run(index, case) for index, case in enumerate(cases))))
    finally:
        await asyncio.gather(*(worker.stop(5) for worker in workers))


async def _run_case(workers: list[WorkerProcess], num_layers: int, case: Case, request_id: str) -> Outcome:
    outcome, position, token = Outcome([]), 0, None
    pieces = case.pieces()
    for index, piece in enumerate(pieces):
        rows = await workers[0].embed_and_forward(request_id, piece, position)
        last = index == len(pieces) - 1
        token = await _rest(workers, num_layers, case, request_id, rows, position, len(piece), last, True, outcome)
        assert (token is None) != last
        position += len(piece)
    assert token is not None
    outcome.tokens.append(token)
    while len(outcome.tokens) < case.count:
        rows = await workers[0].decode_step(request_id, outcome.tokens[-1], position)
        token = await _rest(workers, num_layers, case, request_id, rows, position, 1, True, False, outcome)
        assert token is not None
        outcome.tokens.append(token)
        position += 1
    for worker in workers:
        await worker.reset(request_id)
    return outcome


async def _rest(
    workers: list[WorkerProcess],
    num_layers: int,
    case: Case,
    request_id: str,
    rows: bytes,
    position: int,
    count: int,
    last: bool,
    is_prefill: bool,
    outcome: Outcome,
) -> int | None:
    for stage, worker in enumerate(workers[1:], 1):
        boundary = layer_range(stage, len(workers), num_layers)[0]
        outcome.rows[boundary] = outcome.rows.get(boundary, b"") + rows
        if stage < len(workers) - 1:
            rows = await worker.forward_range(request_id, rows, position, count, is_prefill)
    return await workers[-1].forward_and_sample(request_id, rows, position, count, case.sampling, last, is_prefill)


async def _run_reference(model: str, cases: Sequence[Case], env: Mapping[str, str] | None) -> list[list[int]]:
    answers = []
    for case in cases:
        request = {
            "model": model,
            "context": 512,
            "device": "CPU",
            "tokens": list(case.prompt),
            "max_tokens": case.count,
            "sampling": {
                "temperature": case.sampling.temperature,
                "top_p": case.sampling.top_p,
                "seed": case.sampling.seed,
            },
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ppsmoke_worker.reference"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        out, _ = await asyncio.wait_for(process.communicate(json.dumps(request).encode()), READY_S)
        last = json.loads(out.splitlines()[-1])
        assert "tokens" in last, last
        answers.append(last["tokens"])
    return answers
