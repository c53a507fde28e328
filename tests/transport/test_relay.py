"""Endpoints that know of each other only a name and a relay."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from ppsmoke.errors import DeadlineExceeded, EnvironmentFault
from ppsmoke.iroh_fix import iroh
from ppsmoke.transport import Endpoint, parse_ticket
from tests.transport.relay import relay

KEYS = [bytes([n]) * 32 for n in (1, 2)]


def test_a_node_is_found_through_the_relay_alone_when_its_own_addresses_are_not_known() -> None:
    async def scenario(url: str) -> None:
        near, far = [await Endpoint.bind(key, loopback_only=True, relay_urls=[url], need_relay=True) for key in KEYS]
        try:
            node_id, address = parse_ticket(far.ticket())
            assert address.relay_url().rstrip("/") == url
            accepting = asyncio.ensure_future(far.accept_next())
            by_relay = iroh.EndpointAddr(address.id(), address.relay_url(), [])
            connecting = asyncio.ensure_future(near.connect(by_relay))
            incoming = await asyncio.wait_for(accepting, 30)
            accepted = await (await incoming.accept()).connect()
            connected = await asyncio.wait_for(connecting, 30)
            assert (str(connected.remote_id()), str(accepted.remote_id())) == (node_id, near.node_id)
        finally:
            await near.close()
            await far.close()

    with relay() as made:
        asyncio.run(scenario(made.url))
        assert made.sent > 0


def test_nobody_waits_for_what_a_plain_relay_cannot_tell() -> None:
    """The library would give a relay three seconds to tell whom it serves how it sees them."""

    async def took_s(url: str) -> float:
        began = time.monotonic()
        await (await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=[url], need_relay=True)).close()
        return time.monotonic() - began

    with relay() as made:
        # One of some: a busy machine may be as slow once.
        assert any(asyncio.run(took_s(made.url)) < 2.5 for _ in range(5))


def test_a_relay_that_is_not_there_is_an_error_only_for_whom_it_is_needed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def scenario() -> None:
            endpoint = await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=[url], deadline_s=0.5)
            await endpoint.close()
            with pytest.raises(DeadlineExceeded, match=r"no relay was reached within 0.5 s"):
                await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=[url], need_relay=True, deadline_s=0.5)

        asyncio.run(scenario())


def test_a_peer_may_be_found_through_every_relay_that_we_have() -> None:
    relays = ["http://127.0.0.1:9", "http://127.0.0.1:10/", "http://127.0.0.1:11"]
    peer = iroh.SecretKey.from_bytes(KEYS[1]).public()

    def tried(endpoint: Endpoint, relay_url: str | None) -> list[str]:
        ways = endpoint.ways_to(iroh.EndpointAddr(peer, relay_url, ["203.0.113.9:4000"]))
        assert {(str(way.id()), *map(str, way.direct_addresses())) for way in ways} == {(str(peer), "203.0.113.9:4000")}
        return [str(way.relay_url() or "").rstrip("/") for way in ways]

    async def scenario() -> None:
        endpoint = await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=relays, deadline_s=0.1)
        assert tried(endpoint, relays[1]) == ["http://127.0.0.1:10", relays[0], relays[2]]
        assert tried(endpoint, None) == [""], "it is not to be met at a relay"
        await endpoint.close()
        endpoint = await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=relays[:1], deadline_s=0.1)
        assert tried(endpoint, relays[0]) == relays[:1]
        await endpoint.close()

    asyncio.run(scenario())


def test_what_is_no_address_of_a_relay_is_refused_before_anything_is_bound() -> None:
    async def scenario() -> None:
        with pytest.raises(EnvironmentFault, match="is no address of a relay"):
            await Endpoint.bind(KEYS[0], loopback_only=True, relay_urls=["not a url"])

    asyncio.run(scenario())
