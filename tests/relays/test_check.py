"""Relays are tried before anything is rented or started."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ppsmoke.errors import RelayUnusable, UsageError
from ppsmoke.relays import RelayAnswer, check, check_relay_token, check_relay_url, usable_relays
from ppsmoke.relays.check import PUBLIC_RELAYS
from ppsmoke.relays.client import RelayClient
from tests.transport.relay import relay

TOKEN = "a-secret-of-the-relay"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def ask(*given: str, **more: Any) -> tuple[RelayAnswer, ...]:
    return asyncio.run(usable_relays(given, **more))


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Something that answers a request with these bytes, and one that gets None with nothing at all."""
    loop = asyncio.new_event_loop()
    over, ready = asyncio.Event(), threading.Event()
    where: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await over.wait()
        else:
            writer.write(answer)
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as made:
            where.append(f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}")
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield where[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


def status(text: str, more: str = "") -> bytes:
    return f"HTTP/1.1 {text}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()


def test_a_relay_is_used_and_its_round_trip_and_speed_are_told() -> None:
    with relay() as made:
        (answer,) = ask(made.url, part_bytes=73_728)
        assert len(made.came) == 2
    assert answer.round_trip_s is not None
    assert answer.bytes_per_s is not None
    assert 0 < answer.round_trip_s < 10 < answer.bytes_per_s
    assert answer.describe().startswith(f"{made.url} answers in ")
    assert answer.describe().endswith(" MB/s")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status("404 Not Found"), "is no relay: it answered with status 404; nothing was rented"),
        (
            status("200 OK", "Content-Type: text/html; charset=utf-8\r\n"),
            r"is no relay: it answered with a web page \(status 200\)",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is no relay: its answer is none of HTTP"),
        (b"", "is no relay: it broke off the connection"),
        (status("101 Switching Protocols") + b"\x82\x03abc", "is no relay: it speaks another protocol"),
        (status("101 Switching Protocols") + b"\x82\x11\x00" + bytes(16) + b"\x82\x09\x03\x07not you", "does not let"),
    ],
)
def test_what_is_no_relay_is_named_as_what_it_is(answer: bytes, says: str) -> None:
    with server(answer) as url, pytest.raises(RelayUnusable, match=says) as caught:
        ask(url)
    assert url in caught.value.what
    assert caught.value.what.count("\n") == 0


def test_a_port_where_nothing_listens_is_told_in_words() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(RelayUnusable, match=f"{url} cannot be reached: Connection refused; "):
            ask(url)


def test_a_token_that_is_refused_and_one_that_is_missing_are_told_apart_and_never_shown() -> None:
    with server(status("401 Unauthorized")) as url:
        with pytest.raises(RelayUnusable, match="refuses the token") as refused:
            ask(url, token=TOKEN)
        with pytest.raises(RelayUnusable, match="wants a token") as missing:
            ask(url)
    for caught in (refused, missing):
        assert "PP_RELAY_TOKEN" in (caught.value.remedy or "")
        assert TOKEN not in f"{caught.value!r} {caught.value.what} {caught.value.remedy}"


def test_the_token_goes_to_relays_that_were_given_and_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []

    async def connect(url: str, token: str) -> RelayClient:
        told.append((url, token))
        raise OSError(113, "No route to host")

    monkeypatch.setattr(RelayClient, "connect", connect)
    with pytest.raises(RelayUnusable, match="https://own cannot be reached: No route to host; nothing was started"):
        ask("https://own", token=TOKEN, otherwise="nothing was started")
    with pytest.raises(RelayUnusable) as local:
        ask("https://own", without="the stages reach each other directly")
    assert local.value.remedy == "Give another with --relay-url, or none: then the stages reach each other directly."
    with pytest.raises(RelayUnusable, match="no public relay can be used: "):
        ask(token=TOKEN)
    assert told == [("https://own", TOKEN), ("https://own", ""), *((url, "") for url in PUBLIC_RELAYS)]


def test_every_relay_that_was_given_must_serve_and_of_the_public_ones_one_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with relay() as made, server(status("502 Bad Gateway")) as bad:
        with pytest.raises(RelayUnusable, match=f"the relay {bad} is no relay"):
            ask(made.url, bad)
        monkeypatch.setattr(check, "PUBLIC_RELAYS", (bad, made.url))
        assert [answer.url for answer in ask()] == [made.url]


def test_a_relay_that_is_too_slow_for_the_models_activations_is_refused_with_the_rule() -> None:
    with relay() as made, pytest.raises(RelayUnusable, match=r"is too slow: it carries .* must pass within 2 s"):
        ask(made.url, part_bytes=10**13)


def test_a_relay_far_away_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SLOWEST_S", -1.0)
    with relay() as made, pytest.raises(RelayUnusable, match="is too slow: it answers in"):
        ask(made.url)


def test_a_relay_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_CONNECT_S", 0.05)
    with server(None) as url, pytest.raises(RelayUnusable, match=r"did not answer within 0\.05 s"):
        ask(url)


def test_a_relay_that_lets_in_and_carries_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_TRANSFER_S", 0.05)
    with relay() as made:
        monkeypatch.setattr("tests.transport.relay._TO_RELAY", ())
        with pytest.raises(RelayUnusable, match="carries nothing between them"):
            ask(made.url)


def test_an_address_that_cannot_be_a_relays_is_a_usage_error() -> None:
    assert check_relay_url("https://relay.example.org:8443/") == "https://relay.example.org:8443"
    for url in (
        "relay.example.org",
        "ftp://x",
        "https://",
        "https://u:p@x",
        "https://x/path",
        "http://x:99999",
        "http://[",
    ):
        with pytest.raises(UsageError, match="is not the address of a relay"):
            check_relay_url(url)


def test_a_secret_in_a_bad_address_or_a_bad_token_is_not_repeated() -> None:
    for url in (f"https://user:{TOKEN}@x", f"https://x#token={TOKEN}", f"https://x?t={TOKEN}"):
        with pytest.raises(UsageError) as caught:
            check_relay_url(url)
        assert TOKEN not in caught.value.what
    for token in (f"{TOKEN}\r\nX: y", f"{TOKEN} {TOKEN}", "ü" * 30):
        with pytest.raises(UsageError, match="token is not one word") as caught:
            check_relay_token(token)
        assert token[:10] not in caught.value.what
    assert check_relay_token(TOKEN) == TOKEN
