"""Before anything is rented: do the relays answer, and how fast?

A node on a rented machine is mostly behind a NAT and is reached through a relay at first: a run without one that works
would be paid for and fail. A relay answers GET /ping with status 200; its clients measure their way to it like that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from ppsmoke.errors import RelayUnusable, UsageError

PUBLIC_RELAYS = (
    "https://use1-1.relay.n0.iroh.link",
    "https://usw1-1.relay.n0.iroh.link",
    "https://euc1-1.relay.n0.iroh.link",
    "https://aps1-1.relay.n0.iroh.link",
)
"""The public ones of iroh's makers, named here so that no library's default decides which are used."""

SLOWEST_S = 1.0
"""Links and membership allow for round trips of some hundred ms; both ways through a slower relay are beyond them."""

_ANSWER_S = 5.0
_PINGS = 3


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`round_trip_s`: the best of some, None when it is of no use; `trouble` then says why."""

    url: str
    round_trip_s: float | None
    trouble: str = ""

    def describe(self) -> str:
        """One line."""
        if self.round_trip_s is None:
            return f"{self.url} {self.trouble}"
        return f"{self.url} answers in {self.round_trip_s * 1000:.0f} ms"


def check_relay_url(url: str) -> str:
    """As it was given, less a slash at its end. Raises UsageError for what cannot be a relay's address."""
    try:
        parts = urlsplit(url)
        proper = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
        proper = proper and not (parts.username or parts.password or parts.path.strip("/"))
        proper = proper and not (parts.query or parts.fragment)
    except ValueError:
        proper = False
    if not proper:
        raise UsageError(
            f"--relay-url {url!r} is not the address of a relay", remedy="Give one such as https://relay.example.org."
        )
    return url.rstrip("/")


async def usable_relays(
    given: Sequence[str], *, transport: httpx.AsyncBaseTransport | None = None
) -> tuple[RelayAnswer, ...]:
    """All of `given`, or those of PUBLIC_RELAYS that answer, nearest first.

    Raises RelayUnusable when one that was given is of no use, or none of the public ones is.
    """
    # Without the proxy of the environment: the endpoints will not use it either.
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=httpx.Timeout(_ANSWER_S)) as client:
        answers = await asyncio.gather(*(_ping(client, url) for url in given or PUBLIC_RELAYS))
    bad = [answer for answer in answers if answer.round_trip_s is None]
    if given and bad:
        raise RelayUnusable(
            f"the relay {bad[0].describe()}; nothing was rented",
            remedy="Give another with --relay-url, or none for the public ones of iroh's makers.",
            phase="preflight",
        )
    if len(bad) == len(answers):
        raise RelayUnusable(
            f"no public relay can be used: {bad[0].describe()}; nothing was rented",
            remedy="Check the network, or give a relay of your own with --relay-url.",
            phase="preflight",
        )
    return tuple(sorted((a for a in answers if a.round_trip_s is not None), key=lambda a: a.round_trip_s or 0.0))


async def _ping(client: httpx.AsyncClient, url: str) -> RelayAnswer:
    """The first request pays for the connection; the others show the way."""
    best: float | None = None
    for _ in range(_PINGS):
        began = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await client.get(f"{url}/ping")
        except (TimeoutError, httpx.TimeoutException):
            return RelayAnswer(url, None, f"did not answer within {_ANSWER_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return RelayAnswer(url, None, f"cannot be reached: {error or type(error).__name__}")
        took = time.monotonic() - began
        if answer.status_code != 200:
            return RelayAnswer(url, None, f"is no relay: it answered /ping with status {answer.status_code}")
        best = took if best is None else min(best, took)
    if best is not None and best > SLOWEST_S:
        return RelayAnswer(url, None, f"is too slow: it answers in {best:.1f} s, at most {SLOWEST_S:g} s will do")
    return RelayAnswer(url, best)
