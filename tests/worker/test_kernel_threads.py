"""A worker of several threads: idle while nothing is asked, and nothing left of an engine that was replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from ppsmoke.worker_protocol import Form, Op, Step
from tests.worker.harness import PipedWorker

HIDDEN = 128


@pytest.fixture
def worker(tiny_model: Path) -> Iterator[PipedWorker]:
    arguments = ("--model", str(tiny_model), "--stage", "1", "--num-stages", "3", "--device", "CPU", "--threads", "3")
    with PipedWorker(arguments) as worker:
        worker.ready()
        yield worker


def decode(worker: PipedWorker, steps: int) -> None:
    rows = np.ones((1, HIDDEN), np.float32).tobytes()
    for position in range(steps):
        step = Step(Op.FORWARD_RANGE, "r", position, 1, hidden=rows, is_prefill=position == 0)
        assert "error" not in worker.step(step, Form.RAW).fields
    worker.ask(op="reset")


def test_threads_that_wait_use_no_processor_time(worker: PipedWorker) -> None:
    process = psutil.Process(worker.process.pid)
    decode(worker, 5)
    time.sleep(0.2)  # what a reply leaves to be done is over by now
    before = process.cpu_times()
    time.sleep(1)
    after = process.cpu_times()
    assert after.user + after.system - before.user - before.system < 0.1


def test_an_engine_that_is_replaced_takes_its_threads_and_its_memory_with_it(
    worker: PipedWorker, tiny_model: Path
) -> None:
    process = psutil.Process(worker.process.pid)

    def configure(start: int, end: int) -> None:
        fields = {"model": str(tiny_model), "layer_start": start, "layer_end": end, "context": 512}
        assert worker.ask(op="configure", **fields)["status"] == "configured"
        decode(worker, 3)

    configure(1, 3)
    configure(2, 4)
    threads, memory = process.num_threads(), process.memory_info().rss
    for _ in range(4):
        configure(1, 3)
        configure(2, 4)
    assert process.num_threads() == threads
    assert process.memory_info().rss < memory + (8 << 20)
