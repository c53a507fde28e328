"""The real relay and ours are tried alike before a run depends on them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest

from ppsmoke.errors import RelayUnusable
from ppsmoke.relays import RelayAnswer, usable_relays
from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings
from tests.netlab.nat import Nat
from tests.netlab.relays import RelayServer, relay_on

TOKEN = "a-secret-of-the-relay"
ONE_WAY_S = 0.05
NODE = """
import asyncio, os, sys
from ppsmoke.errors import DeadlineExceeded
from ppsmoke.transport import Endpoint, parse_ticket

async def bind(url, token):
    deadline_s = 2.0 if token.startswith("another") else 30.0
    how = {"relay_urls": [url], "relay_token": token, "need_relay": True, "deadline_s": deadline_s}
    try:
        endpoint = await Endpoint.bind(os.urandom(32), loopback_only=False, **how)
    except DeadlineExceeded as error:
        print(error.what.partition(":")[0])
        return
    print(parse_ticket(endpoint.ticket())[1].relay_url())
    await endpoint.close()

asyncio.run(bind(*sys.argv[1:]))
"""


@pytest.fixture
def caller(lab: Lab) -> Host:
    return lab.host("caller", nat=Nat.SYMMETRIC, link=LinkSettings(delay_s=ONE_WAY_S))


@pytest.fixture
def guarded(lab: Lab, relay_kind: str) -> Iterator[RelayServer]:
    """A relay that wants a token."""
    with relay_on(lab.host("relay"), relay_kind, TOKEN) as server:
        yield server


def ask(caller: Host, relay: RelayServer, token: str, part_bytes: int = 73_728) -> RelayAnswer:
    """What the caller finds of it."""
    with caller.inside():
        (answer,) = asyncio.run(usable_relays([relay.url], token=token, part_bytes=part_bytes))
    return answer


def test_a_relay_shows_its_round_trip_and_what_it_carries_to_whom_it_lets_in(
    caller: Host, guarded: RelayServer
) -> None:
    answer = ask(caller, guarded, TOKEN)
    assert answer.round_trip_s is not None
    assert answer.bytes_per_s is not None
    assert 2 * ONE_WAY_S <= answer.round_trip_s < 1.0
    assert answer.bytes_per_s > 73_728 / 2.0


def test_a_relay_that_does_not_let_us_in_is_named_so(caller: Host, guarded: RelayServer) -> None:
    with pytest.raises(
        RelayUnusable, match=f"the relay {guarded.url} refuses the token.*; nothing was rented"
    ) as wrong:
        ask(caller, guarded, "another-token")
    with pytest.raises(RelayUnusable, match=f"the relay {guarded.url} (wants a token|does not let us in).*") as none:
        ask(caller, guarded, "")
    for caught in (wrong, none):
        assert "PP_RELAY_TOKEN" in (caught.value.remedy or "")
        assert TOKEN not in f"{caught.value.what} {caught.value.remedy}"


@pytest.mark.slow
def test_a_node_with_the_token_is_found_through_the_relay_and_one_without_is_not(
    caller: Host, guarded: RelayServer
) -> None:
    said = [caller.run(sys.executable, "-P", "-c", NODE, guarded.url, token) for token in (TOKEN, "another-token")]
    assert said == [f"{guarded.url}/\n", "no relay was reached within 2 s\n"]
