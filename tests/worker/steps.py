"""Steps for a worker's step socket, made by hand and by tests alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ppsmoke.objects import StreamObject, encode_header, token_payload
from ppsmoke.step_frames import decode_token, request_prefix
from ppsmoke.worker_client import WorkerProcess
from ppsmoke.worker_protocol import GREEDY, Op, Sampling

REQUEST = "5a" * 16


async def embed_and_forward(worker: WorkerProcess, request: str, tokens: Sequence[int], position: int) -> bytes:
    return await _ask(
        worker, request_prefix(Op.EMBED_AND_FORWARD), request, token_payload(tokens), position, len(tokens)
    )


async def decode_step(worker: WorkerProcess, request: str, token: int, position: int) -> bytes:
    payload = token_payload([token])
    return await _ask(worker, request_prefix(Op.DECODE_STEP), request, payload, position, 1, is_prefill=False)


async def forward_range(
    worker: WorkerProcess, request: str, rows: bytes, position: int, count: int, is_prefill: bool
) -> bytes:
    prefix = request_prefix(Op.FORWARD_RANGE)
    return await _ask(worker, prefix, request, rows, position, count, is_prefill=is_prefill)


async def forward_and_sample(
    worker: WorkerProcess,
    request: str,
    rows: bytes,
    position: int,
    count: int,
    is_prefill: bool,
    *,
    sampling: Sampling = GREEDY,
    last: bool = True,
) -> int | None:
    prefix = request_prefix(Op.FORWARD_AND_SAMPLE, sampling)
    return decode_token(
        await _ask(worker, prefix, request, rows, position, count, is_prefill=is_prefill, last_part=last)
    )


async def _ask(
    worker: WorkerProcess,
    prefix: bytes,
    request: str,
    payload: bytes,
    position: int,
    count: int,
    *,
    is_prefill: bool = True,
    last_part: bool = True,
) -> bytes:
    obj = StreamObject(
        edge_id=0, request_id=request, sequence=0, position=position, seq_len=count, payload=payload,
        is_prefill=is_prefill, last_part=last_part,
    )  # fmt: skip

    def step() -> bytes:
        worker.steps.ask(prefix, encode_header(obj) + payload)
        return worker.steps.answer().payload

    return await asyncio.to_thread(step)
