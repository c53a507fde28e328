"""The default model on rented machines: each fetches its own share by range requests, the caller the header alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ppsmoke.models import DEFAULT_MODEL, ensure_share, find_model, header_only, parse_model
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.preflight import stage_memories
from ppsmoke.request import open_model
from tests.models.kit import FileServer, Reply, Request, file_answer, file_server
from tests.vast.rented import Watcher, rent_and_run, run_options

pytestmark = pytest.mark.real_model

HEADER_MOST = 12 << 20
"""What a look at the header may take: it ends in the first pieces that are read."""


class Served:
    """The model's file as a web server has it. `nbytes`: how much of it was sent."""

    def __init__(self, files: FileServer, path: Path) -> None:
        self.url = f"{files.url}/models/{path.name}"
        self.size = path.stat().st_size
        self.nbytes = 0
        self._answer = file_answer(path.read_bytes())
        files.answers[f"/models/{path.name}"] = self._counted

    def _counted(self, request: Request) -> Reply:
        reply = self._answer(request)
        self.nbytes += len(reply.body)
        return reply


@contextmanager
def served() -> Iterator[Served]:
    path = find_model(parse_model(DEFAULT_MODEL))
    assert path is not None
    with file_server() as files:
        yield Served(files, path)


def options_for(folder: Path, stages: int, model_id: str, path: Path, *, fetched_by_nodes: bool) -> RunOptions:
    model = open_model(model_id, path, fetched_by_nodes=fetched_by_nodes)
    prompt = model.encode_prompt("Say hello", raw=False, system=None, now=datetime(2026, 1, 1, tzinfo=UTC))
    return run_options(folder, stages, model, tuple(prompt))


@pytest.mark.parametrize("stages", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_the_default_model_says_the_same_on_rented_machines(stages: int, tmp_path: Path) -> None:
    with served() as file:
        ref = parse_model(file.url)
        header = ensure_share(ref, header_only, cache_dir=tmp_path / "cache")
        assert file.nbytes <= HEADER_MOST
        options = options_for(tmp_path, stages, ref.id, header, fetched_by_nodes=True)
        for_header, file.nbytes = file.nbytes, 0
        done = rent_and_run(tmp_path, options)
        assert done.result.error is None, done.told()
        assert done.left == []
        assert "fetching" in done.watcher.all
        shares = sum(memory.file_bytes for memory in stage_memories(options))
        print(for_header, file.nbytes, shares, file.size)
        assert file.nbytes <= shares + stages * (for_header + (1 << 20))
    whole = find_model(parse_model(DEFAULT_MODEL))
    assert whole is not None
    (tmp_path / "seed").mkdir()
    local = options_for(tmp_path / "seed", 2, DEFAULT_MODEL, whole, fetched_by_nodes=False)
    said = asyncio.run(LocalRun(local, Watcher()).execute())
    assert said.error is None
    assert (done.result.tokens, done.result.text) == (said.tokens, said.text)
