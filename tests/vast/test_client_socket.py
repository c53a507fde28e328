"""The client against real sockets that refuse, hang, break off, or answer: what is known of a create's effect."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from ppsmoke.errors import CreateFailed, VastUnavailable
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.client import Timeouts, VastClient
from ppsmoke.vast.records import CreateRequest
from tests.vast.kit import KEY

REQUEST = CreateRequest(label="l", image="i", disk_gb=10, script="s", env={})
BODY = b'{"success": true, "new_contract": 4187320}'
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
PATIENT = Timeouts(connect_s=20, request_s=20, create_s=20)
HASTY = Timeouts(connect_s=1.5, request_s=0.3, create_s=0.3)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length"))
    return head + await reader.readexactly(length)


def outcome_of_create(answer: Answer, timeouts: Timeouts) -> tuple[int | str, list[bytes]]:
    """The new instance's id or the failure's outcome, and the requests that arrived."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heard.append(await read_request(reader))
            await answer(reader, writer)
        finally:
            writer.close()

    async def run() -> int | str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with VastClient(ApiKey(KEY, "test"), base_url=url, timeouts=timeouts, time_scale=0.001) as client:
                try:
                    return await client.create(7, REQUEST)
                except CreateFailed as error:
                    return error.outcome

    return asyncio.run(run()), heard


def test_an_answer_is_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()

    found, heard = outcome_of_create(answer, PATIENT)
    assert found == 4187320
    assert heard[0].startswith(b"PUT /api/v0/asks/7/ HTTP/1.1\r\n")
    assert f"authorization: bearer {KEY}".encode() in heard[0].lower()
    assert KEY not in caplog.text, "not even the http library's own log has the key"


def test_a_service_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()

    assert outcome_of_create(answer, PATIENT)[0] == 4187320


def test_silence_after_the_request_is_an_unknown_outcome_and_not_repeated() -> None:
    async def answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    found, heard = outcome_of_create(answer, HASTY)
    assert found == "unknown"
    assert len(heard) == 1


@pytest.mark.parametrize("sent", [b"", OK[:20], OK[:-5], b"HTTP/1.1 200 OK\r\n\r\n", b"\x00 nonsense\r\n\r\n"])
def test_an_answer_that_breaks_off_is_an_unknown_outcome_and_not_repeated(sent: bytes) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()

    found, heard = outcome_of_create(answer, PATIENT)
    assert found == "unknown"
    assert len(heard) == 1


def test_an_answer_that_trickles_in_is_given_up() -> None:
    slow = b" " * 100 + BODY

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(slow))
        for byte in slow:
            if writer.is_closing():
                return
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    assert outcome_of_create(answer, HASTY)[0] == "unknown"


def test_nobody_at_the_address_means_that_nothing_was_made() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"

        async def run() -> None:
            async with VastClient(ApiKey(KEY, "test"), base_url=url, time_scale=0.001) as client:
                with pytest.raises(CreateFailed) as caught:
                    await client.create(7, REQUEST)
                assert caught.value.outcome == "not_created"
                with pytest.raises(VastUnavailable, match=f"{url} cannot be reached") as unheard:
                    await client.list_instances()
                assert "the emulator" in (unheard.value.remedy or "")

        asyncio.run(run())
