"""A node gets its share of a model that is elsewhere: real processes against a real server on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import BadStageCount, DeadlineExceeded, ModelFetchFailed
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts, stage_tensors
from ppsmoke.stage.helper_process import HelperProcess
from ppsmoke.stage.model_share import ShareFetch, is_local
from tests.models.kit import FileServer, Reply, Request, file_answer, file_server

PATH = "/m/tiny.gguf"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FileServer]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PP_SMOKE_CACHE", str(tmp_path / "cache"))
    with file_server() as files:
        yield files


def fetch_of(stage: int, num_stages: int, said: list[str] | None = None) -> ShareFetch:
    lines: list[str] = [] if said is None else said
    return ShareFetch(stage=stage, num_stages=num_stages, on_progress=lambda progress: lines.append(progress.text))


def children() -> list[psutil.Process]:
    """The fetching processes; a test run has others beside them."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("share_program" in word for word in child.cmdline()):
                found.append(child)
    return found


def test_a_stage_gets_the_blocks_that_its_index_implies(server: FileServer, tmp_path: Path) -> None:
    data = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=40).read_bytes()
    server.answers[PATH] = file_answer(data)
    said: list[str] = []

    async def run() -> str:
        return await fetch_of(2, 4, said).of_stage(server.url + PATH, 60)

    with open_gguf(Path(asyncio.run(run()))) as gguf:
        for name in stage_tensors(read_model_facts(gguf), 20, 30):
            gguf.raw(name)
    assert said[0].startswith("fetching 0 of ")
    assert not children()


def test_the_plans_range_is_added_to_what_is_there(server: FileServer, tmp_path: Path) -> None:
    data = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=8).read_bytes()
    server.answers[PATH] = file_answer(data)

    async def run() -> str:
        fetch = fetch_of(0, 4)
        await fetch.of_stage(server.url + PATH, 60)
        return await fetch.of_layers(server.url + PATH, 3, 4, 60)

    with open_gguf(Path(asyncio.run(run()))) as gguf:
        gguf.raw("blk.0.attn_q.weight")
        gguf.raw("blk.3.attn_q.weight")


def test_the_servers_refusal_reaches_the_stage_with_its_code(server: FileServer) -> None:
    with pytest.raises(ModelFetchFailed, match=r"stage 1: .* has no file tiny\.gguf \(404\)") as caught:
        asyncio.run(fetch_of(1, 2).of_stage(server.url + PATH, 60))
    assert caught.value.stage == 1


def test_more_stages_than_blocks_are_refused_before_anything_is_fetched(server: FileServer, tmp_path: Path) -> None:
    server.answers[PATH] = file_answer(write_tiny_gguf(tmp_path / "tiny.gguf", blocks=2).read_bytes())
    with pytest.raises(BadStageCount):
        asyncio.run(fetch_of(2, 3).of_stage(server.url + PATH, 60))


def test_a_server_that_hangs_ends_with_the_deadline_and_leaves_no_process(server: FileServer) -> None:
    release = threading.Event()

    def hang(request: Request) -> Reply:
        release.wait(60)
        return Reply(404)

    server.answers[PATH] = hang
    try:
        with pytest.raises(DeadlineExceeded, match="did not get its share"):
            asyncio.run(fetch_of(0, 2).of_stage(server.url + PATH, 3))
        assert not children()
    finally:
        release.set()


def test_a_stage_that_is_stopped_ends_its_fetch(server: FileServer) -> None:
    asked, release = threading.Event(), threading.Event()

    def hang(request: Request) -> Reply:
        asked.set()
        release.wait(60)
        return Reply(404)

    server.answers[PATH] = hang

    async def run() -> None:
        task = asyncio.create_task(fetch_of(0, 2).of_stage(server.url + PATH, 60))
        await asyncio.to_thread(asked.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(run())
        assert asked.is_set()
        assert not children()
    finally:
        release.set()


def test_a_fetch_that_is_ended_leaves_its_successor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fetches of one stage, the second begun while the first is being cancelled."""

    class Idle:
        def __init__(self) -> None:
            self.ended = False
            self.asked = asyncio.Event()

        async def ask(self, _request: object) -> None:
            self.asked.set()

        async def answer(self) -> dict[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

        async def end(self) -> None:
            self.ended = True

    made = [Idle(), Idle()]
    waiting = iter(made)

    async def begin(_module: str) -> Idle:
        return next(waiting)

    async def run() -> None:
        fetch = fetch_of(0, 2)
        first = asyncio.create_task(fetch.of_stage("m", 60))
        await made[0].asked.wait()
        second = asyncio.create_task(fetch.of_layers("m", 0, 1, 60))
        await made[1].asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert [process.ended for process in made] == [True, False]
        await fetch.close()
        assert made[1].ended
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    monkeypatch.setattr(HelperProcess, "begin", begin)
    asyncio.run(run())


@pytest.mark.parametrize(
    ("model", "local"),
    [("/models/m.gguf", True), ("stub:layers=8", True), ("llama3.2:1b", False), ("https://host/m.gguf", False)],
)
def test_what_has_to_be_fetched(model: str, local: bool) -> None:
    assert is_local(model) is local
