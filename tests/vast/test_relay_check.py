"""Relays are asked before anything is rented."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from ppsmoke.errors import RelayUnusable, UsageError
from ppsmoke.vast import relay_check
from ppsmoke.vast.relay_check import PUBLIC_RELAYS, RelayAnswer, check_relay_url, usable_relays


def ask(answer: Callable[[httpx.Request], httpx.Response], *given: str) -> tuple[RelayAnswer, ...]:
    return asyncio.run(usable_relays(given, transport=httpx.MockTransport(answer)))


def refuse_connection(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no route to host", request=request)


def test_a_relay_that_answers_ping_can_be_used() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200)

    (relay,) = ask(answer, "https://relay.example.org")
    assert set(asked) == {"https://relay.example.org/ping"}
    assert relay.round_trip_s is not None
    assert relay.describe().startswith("https://relay.example.org answers in ")


def test_every_relay_that_was_given_must_serve() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if request.url.host == "good" else 502)

    with pytest.raises(RelayUnusable, match=r"https://bad is no relay: it answered /ping with status 502; nothing"):
        ask(answer, "https://good", "https://bad")


def test_one_of_the_public_ones_is_enough_and_the_others_are_left_out() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200) if str(request.url).startswith(PUBLIC_RELAYS[2]) else refuse_connection(request)

    assert [relay.url for relay in ask(answer)] == [PUBLIC_RELAYS[2]]


def test_no_network_is_said_as_such() -> None:
    with pytest.raises(RelayUnusable, match=r"no public relay can be used: .* cannot be reached: no route to host"):
        ask(refuse_connection)


def test_a_relay_that_is_too_slow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_check, "SLOWEST_S", -1.0)
    with pytest.raises(RelayUnusable, match="is too slow"):
        ask(lambda request: httpx.Response(200), "https://relay.example.org")


def test_a_relay_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_check, "_ANSWER_S", 0.05)

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(RelayUnusable, match=r"did not answer within 0\.05 s"):
        asyncio.run(usable_relays(["https://relay.example.org"], transport=Silent()))


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
