from __future__ import annotations

from collections.abc import Iterator

import pytest

from ppsmoke.models import ensure_model, parse_model
from tests.equivalence.chain import WorkerPool
from tests.equivalence.one_process import OneProcess


@pytest.fixture(scope="session")
def default_model() -> str:
    return str(ensure_model(parse_model("smollm2:135m")))


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as pool:
        yield pool


@pytest.fixture(scope="session")
def one_process() -> Iterator[OneProcess]:
    """The whole model in the engine that a worker takes on the CPU."""
    with OneProcess("ours") as process:
        yield process


@pytest.fixture(scope="session")
def plain_process() -> Iterator[OneProcess]:
    """The whole model in the engine of other devices, on the CPU."""
    with OneProcess("ours", {"PP_WORKER_ENGINE": "plain"}) as process:
        yield process


@pytest.fixture(params=["kernels", "plain"])
def either_process(request: pytest.FixtureRequest) -> OneProcess:
    process: OneProcess = request.getfixturevalue("one_process" if request.param == "kernels" else "plain_process")
    return process


@pytest.fixture(scope="session")
def tinygrads_own() -> Iterator[OneProcess]:
    """tinygrad's own Transformer."""
    with OneProcess("tinygrad") as process:
        yield process
