"""Files of the orchestrator's machine, read over real connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import JoinRefused, ModelFetchFailed, ModelNotFound
from ppsmoke.files.protocol import FILES_ALPN
from ppsmoke.files.reader import FileReader
from ppsmoke.files.service import FileService
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts, stage_tensors
from ppsmoke.stage.model_share import ShareFetch
from ppsmoke.transport.endpoint import Endpoint
from ppsmoke.transport.mesh import Mesh
from tests.transport.kit import RUN_ID, TOKEN, VERSION, Recorder, eventually, key_of, name_of

BIG = os.urandom(3 << 20)


def with_service(
    tmp_path: Path,
    files: dict[str, bytes],
    body: Callable[[str, FileService, Callable[[], None]], Awaitable[None]],
) -> None:
    """Run `body(ticket, service, break_connections)` beside a mesh that serves `files`."""
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    async def run() -> None:
        endpoint = await Endpoint.bind(key_of("orchestrator"), loopback_only=True, further_alpns=[FILES_ALPN])
        mesh = Mesh(
            endpoint,
            run_id=RUN_ID,
            join_token=TOKEN,
            tool_version=VERSION,
            name_of=name_of,
            admit=lambda _: None,
            events=Recorder(),
        )
        paths = {name: tmp_path / name for name in files}
        service = FileService(paths, run_id=RUN_ID, join_token=TOKEN, own_id=endpoint.node_id)
        connections: list[Any] = []

        async def serve(connection: Any) -> None:
            connections.append(connection)
            await service.serve(connection)

        mesh.services[FILES_ALPN] = serve
        mesh.start()
        try:
            await body(endpoint.ticket(), service, lambda: [c.close(9, b"broken") for c in connections])  # type: ignore[arg-type,return-value]
        finally:
            await mesh.close("test over")
            service.close()

    asyncio.run(run())


def reader(ticket: str, token: bytes = TOKEN) -> FileReader:
    return FileReader(ticket, run_id=RUN_ID, join_token=token, pauses_s=(0.0, 0.0))


def test_ranges_arrive_as_they_are_in_the_file(tmp_path: Path) -> None:
    async def body(ticket: str, service: FileService, _: object) -> None:
        def read() -> None:
            with reader(ticket) as files:
                (offered,) = files.files()
                assert (offered.name, offered.size) == ("m.gguf", len(BIG))
                assert files.read("m.gguf", 0, 10) == BIG[:10]
                assert files.read("m.gguf", 1_000_001, 1_500_000) == BIG[1_000_001:2_500_001]
                assert files.read("m.gguf", len(BIG) - 1, 1) == BIG[-1:]

        await asyncio.to_thread(read)
        # The reader may have the last byte before its sender has counted it.
        await eventually(lambda: service.bytes_sent >= 1_500_011)
        assert service.bytes_sent == 1_500_011

    with_service(tmp_path, {"m.gguf": BIG}, body)


def test_several_readers_at_once(tmp_path: Path) -> None:
    async def body(ticket: str, _: FileService, __: object) -> None:
        def read() -> bytes:
            with reader(ticket) as files:
                return files.read("m.gguf", 0, len(BIG))

        assert await asyncio.gather(*(asyncio.to_thread(read) for _ in range(3))) == [BIG] * 3

    with_service(tmp_path, {"m.gguf": BIG}, body)


def test_who_does_not_hold_the_token_gets_nothing(tmp_path: Path) -> None:
    async def body(ticket: str, service: FileService, _: object) -> None:
        def read() -> None:
            with reader(ticket, b"another token") as files, pytest.raises(JoinRefused, match="token is wrong"):
                files.read("m.gguf", 0, 10)

        await asyncio.to_thread(read)
        assert service.bytes_sent == 0

    with_service(tmp_path, {"m.gguf": BIG}, body)


@pytest.mark.parametrize(
    ("name", "offset", "length", "why"),
    [
        ("../../etc/passwd", 0, 1, "there is no file"),
        ("m.gguf", -1, 1, "are not in m.gguf"),
        ("m.gguf", 95, 6, "are not in m.gguf"),
        ("m.gguf", 1 << 60, 1, "are not in m.gguf"),
    ],
)
def test_only_what_is_offered_can_be_read(tmp_path: Path, name: str, offset: int, length: int, why: str) -> None:
    async def body(ticket: str, _: FileService, __: object) -> None:
        def read() -> None:
            with reader(ticket) as files:
                with pytest.raises(ModelFetchFailed, match=why):
                    files.read(name, offset, length)
                assert files.read("m.gguf", 0, 5) == b"aaaaa"  # the connection goes on

        await asyncio.to_thread(read)

    with_service(tmp_path, {"m.gguf": b"a" * 100}, body)


def test_a_connection_that_breaks_is_made_anew(tmp_path: Path) -> None:
    async def body(ticket: str, _: FileService, break_connections: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            with reader(ticket) as files:
                assert files.read("m.gguf", 0, 5) == BIG[:5]
                asyncio.run_coroutine_threadsafe(_call(break_connections), loop).result(10)
                assert files.read("m.gguf", 5, 5) == BIG[5:10]

        await asyncio.to_thread(read)

    with_service(tmp_path, {"m.gguf": BIG}, body)


async def _call(what: Callable[[], None]) -> None:
    what()


def test_a_file_that_is_written_to_during_the_run_is_refused(tmp_path: Path) -> None:
    async def body(ticket: str, _: FileService, __: object) -> None:
        def read() -> None:
            with reader(ticket) as files:
                files.read("m.gguf", 0, 5)
                with (tmp_path / "m.gguf").open("r+b") as file:
                    file.write(b"changed")
                os.utime(tmp_path / "m.gguf", ns=(1, 1))
                with pytest.raises(ModelFetchFailed, match=r"m\.gguf was changed during the run"):
                    files.read("m.gguf", 0, 5)

        await asyncio.to_thread(read)

    with_service(tmp_path, {"m.gguf": BIG}, body)


def test_a_file_that_is_replaced_is_served_as_it_was(tmp_path: Path) -> None:
    async def body(ticket: str, _: FileService, __: object) -> None:
        def read() -> None:
            with reader(ticket) as files:
                (tmp_path / "new").write_bytes(b"other")
                os.replace(tmp_path / "new", tmp_path / "m.gguf")
                assert files.read("m.gguf", 0, len(BIG)) == BIG

        await asyncio.to_thread(read)

    with_service(tmp_path, {"m.gguf": BIG}, body)


def test_a_file_that_is_withdrawn_is_closed_and_no_longer_offered(tmp_path: Path) -> None:
    async def body(ticket: str, service: FileService, _: object) -> None:
        more = tmp_path / "code.whl"
        more.write_bytes(b"new code")
        service.offer("code-1", more)

        def names() -> list[str]:
            with reader(ticket) as files:
                return [file.name for file in files.files()]

        def is_open() -> bool:
            return any(link.resolve() == more for link in Path("/proc/self/fd").iterdir())

        assert await asyncio.to_thread(names) == ["m.gguf", "code-1"]
        assert is_open()
        service.withdraw("code-1")
        assert await asyncio.to_thread(names) == ["m.gguf"]
        assert not is_open()
        service.withdraw("code-1")

    with_service(tmp_path, {"m.gguf": BIG}, body)


def test_an_orchestrator_that_is_gone_is_an_error_and_no_hang(tmp_path: Path) -> None:
    tickets: list[str] = []

    async def body(ticket: str, _: FileService, __: object) -> None:
        tickets.append(ticket)

    with_service(tmp_path, {"m.gguf": BIG}, body)
    with (
        FileReader(tickets[0], run_id=RUN_ID, join_token=TOKEN, pauses_s=(), connect_s=1.0) as files,
        pytest.raises(ModelFetchFailed, match="over iroh failed"),
    ):
        files.read("m.gguf", 0, 1)


def test_a_file_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"nothing\.gguf cannot be read"):
        FileService({"m": tmp_path / "nothing.gguf"}, run_id=RUN_ID, join_token=TOKEN, own_id="0" * 64)


def test_a_node_gets_its_share_of_the_orchestrators_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PP_SMOKE_CACHE", str(tmp_path / "cache"))
    first = write_tiny_gguf(tmp_path / "own.gguf", blocks=40, split_max_tensors=150)
    parts = sorted(tmp_path.glob("own-*.gguf"))
    assert len(parts) > 1

    async def body(ticket: str, service: FileService, _: object) -> None:
        environment = {"STAGE": "1", "NUM_STAGES": "4", "SEED_ADDR": ticket, "PP_RUN_ID": RUN_ID}
        for name, value in {**environment, "PP_JOIN_TOKEN": TOKEN.hex(), "PP_MODEL": "-"}.items():
            monkeypatch.setenv(name, value)
        fetch = ShareFetch(stage=1, num_stages=4, on_progress=lambda _: None)
        path = await fetch.of_stage(f"orchestrator:{first.name}", 60)
        with open_gguf(Path(path)) as got, open_gguf(first) as whole:
            for name in stage_tensors(read_model_facts(got), 10, 20):
                np.testing.assert_array_equal(got.raw(name), whole.raw(name))
            with pytest.raises(ModelNotFound):
                got.raw("blk.9.attn_q.weight")
        assert service.bytes_sent < sum(part.stat().st_size for part in parts) * 0.7
        with pytest.raises(ModelFetchFailed, match=r"stage 1: the orchestrator does not offer other\.gguf"):
            await fetch.of_stage("orchestrator:other.gguf", 60)

    with_service(tmp_path, {part.name: part.read_bytes() for part in parts}, body)
