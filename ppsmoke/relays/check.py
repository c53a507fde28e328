"""Before anything is rented or started: do the relays let us in, how far are they, and what do they carry?

A node on a rented machine is mostly behind a NAT and is reached through a relay at first: a run without one that works
would be paid for and fail. That something answers there is not enough. Two clients of ours meet at the relay and send
each other about as much as a part of a prompt.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ppsmoke.errors import RelayUnusable, UsageError
from ppsmoke.figures import elapsed, in_milliseconds, rate, size
from ppsmoke.relays.client import NoRelay, RelayClient

PUBLIC_RELAYS = (
    "https://use1-1.relay.n0.iroh.link",
    "https://usw1-1.relay.n0.iroh.link",
    "https://euc1-1.relay.n0.iroh.link",
    "https://aps1-1.relay.n0.iroh.link",
)
"""The public ones of iroh's makers, named here so that no library's default decides which are used."""

SLOWEST_S = 1.0
"""Links and membership allow for round trips of some hundred ms; both ways through a slower relay are beyond them."""
PART_S = 2.0
"""A relay must carry one part of a prompt's activations in this time: more, and every stage mostly waits for it."""

_DEADLINE_S = 10.0
_CONNECT_S = 5.0
_TRANSFER_S = 3.0
_TRANSFER_BYTES = 1 << 20
_PINGS = 3


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`round_trip_s`: the best of some; `bytes_per_s`: from here through the relay to here; None where that was not to
    be had. `trouble`: why it is of no use, empty for a good one."""

    url: str
    round_trip_s: float | None
    bytes_per_s: float | None = None
    trouble: str = ""

    def describe(self) -> str:
        """One line."""
        if self.trouble or self.round_trip_s is None or self.bytes_per_s is None:
            return f"{self.url} {self.trouble}"
        return f"{self.url} answers in {_answer_time(self.round_trip_s)} and carries {rate(self.bytes_per_s)}"


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
        # Not the whole of it: somebody may have put a secret into it.
        shown = re.sub(r"//[^/@]*@|[?#].*", lambda found: "//...@" if "@" in found[0] else f"{found[0][0]}...", url)
        raise UsageError(
            f"--relay-url {shown!r} is not the address of a relay",
            remedy="Give one such as https://relay.example.org; its token goes into PP_RELAY_TOKEN.",
        )
    return url.rstrip("/")


def check_relay_token(token: str) -> str:
    """As it was given. Raises UsageError for what no HTTP header can carry, without showing it."""
    if not re.fullmatch(r"[!-~]{0,512}", token):
        raise UsageError(
            "the relay's token is not one word of printable ASCII",
            remedy="Give it as the relay's owner wrote it, in PP_RELAY_TOKEN or with --relay-token.",
        )
    return token


async def usable_relays(
    given: Sequence[str],
    *,
    token: str = "",
    part_bytes: int = 0,
    otherwise: str = "nothing was rented",
    without: str = "the public ones of iroh's makers are used",
) -> tuple[RelayAnswer, ...]:
    """All of `given`, or those of PUBLIC_RELAYS that serve, nearest first.

    `token`: for those that were given. `part_bytes`: what one part of a prompt has. `otherwise`: what became of the
    run, for the error; `without`: what a run does that names no relay. Raises RelayUnusable when one that was given is
    of no use, or none of the public ones is.
    """
    token = token if given else ""
    answers = await asyncio.gather(*(_try(url, token, part_bytes) for url in given or PUBLIC_RELAYS))
    bad = [answer for answer in answers if answer.trouble]
    if given and bad:
        raise RelayUnusable(
            f"the relay {bad[0].describe()}; {otherwise}",
            remedy=_remedy(bad[0].trouble, without),
            phase="preflight",
        )
    if len(bad) == len(answers):
        raise RelayUnusable(
            f"no public relay can be used: {bad[0].describe()}; {otherwise}",
            remedy="Check the network, or give a relay of your own with --relay-url.",
            phase="preflight",
        )
    return tuple(sorted((a for a in answers if not a.trouble), key=lambda a: a.round_trip_s or 0.0))


def _remedy(trouble: str, without: str) -> str:
    if "token" in trouble or "let us in" in trouble:
        return "Put the relay's token into PP_RELAY_TOKEN, or give it with --relay-token."
    return f"Give another with --relay-url, or none: then {without}."


async def _try(url: str, token: str, part_bytes: int) -> RelayAnswer:
    clients: list[RelayClient] = []
    try:
        async with asyncio.timeout(_DEADLINE_S):
            async with asyncio.timeout(_CONNECT_S):
                for _ in range(2):
                    clients.append(await RelayClient.connect(url, token))
            round_trip_s = min([await clients[0].round_trip() for _ in range(_PINGS)])
            bytes_per_s = await _carried(*clients)
    except NoRelay as found:
        return RelayAnswer(url, None, trouble=str(found))
    except TimeoutError:
        late = f"did not answer within {_CONNECT_S:g} s" if len(clients) < 2 else "fell silent while it was tried"
        return RelayAnswer(url, None, trouble=late)
    except ssl.SSLCertVerificationError as error:
        return RelayAnswer(url, None, trouble=f"has no valid certificate: {error.verify_message}")
    except (OSError, EOFError, UnicodeError) as error:
        if len(clients) == 2:
            return RelayAnswer(url, None, trouble="broke off while it was tried")
        return RelayAnswer(url, None, trouble=f"cannot be reached: {_in_words(error)}")
    finally:
        for client in clients:
            client.close()
    return RelayAnswer(url, round_trip_s, bytes_per_s, _too_slow(round_trip_s, bytes_per_s, part_bytes))


def _in_words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number and not isinstance(error, socket.gaierror | ssl.SSLError):
        return os.strerror(number)  # asyncio puts the address as a tuple in its place
    return getattr(error, "strerror", None) or str(error)


async def _carried(source: RelayClient, target: RelayClient) -> float:
    """Bytes a second from one to the other. What a relay drops, as it may, does not count."""
    began = time.monotonic()
    sending = asyncio.create_task(source.send(target.key, _TRANSFER_BYTES))
    came, ended = 0, began
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TRANSFER_S):
                while came < _TRANSFER_BYTES:
                    came += await target.received()
                    ended = time.monotonic()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return came / max(ended - began, 1e-6) if came >= _TRANSFER_BYTES else came / _TRANSFER_S


def _too_slow(round_trip_s: float, bytes_per_s: float, part_bytes: int) -> str:
    """Why it is, empty when it is not."""
    if round_trip_s > SLOWEST_S:
        return f"is too slow: it answers in {elapsed(round_trip_s)}, at most {SLOWEST_S:g} s will do"
    if bytes_per_s <= 0:
        return "lets clients in and carries nothing between them"
    if part_bytes > bytes_per_s * PART_S:
        return (
            f"is too slow: it carries {rate(bytes_per_s)}, and one part of a prompt's activations, "
            f"{size(part_bytes)}, must pass within {PART_S:g} s"
        )
    return ""


def _answer_time(round_trip_s: float) -> str:
    return "under 1 ms" if round_trip_s < 0.001 else in_milliseconds(round_trip_s)
