"""Where a process can be reached from outside the NAT it sits behind, as far as its peers have told it. Pure.

A relay without address discovery tells nobody how it is seen. But whoever reaches a peer directly has gone out through
its own NAT to get there, and that peer knows from which address. With a NAT that keeps one address for all whom it
sends to, that is where every other peer reaches us, once both sides send to each other at one time.

A NAT that takes a new address for each of them (a symmetric one) makes what was told useless, and harmless: nothing
answers there, and the relay goes on serving.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass

MAX_KEPT = 3
"""So many are published: each is one more that every peer tries, and one more in every membership record."""


@dataclass(frozen=True, slots=True)
class Change:
    """What to publish from now on, and what no longer; "ip:port"."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def proper_address(text: str) -> str | None:
    """ "ip:port" as this program writes it, None for what nobody could be reached at from another machine."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        return None
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback or ip.is_unspecified or ip.is_multicast or ip.is_link_local:
        return None
    return f"[{ip}]:{int(port)}" if ip.version == 6 else f"{ip}:{int(port)}"


class ExternalAddresses:
    """`published`: what holds now, in the order in which it was told."""

    def __init__(self) -> None:
        self.published: tuple[str, ...] = ()
        self._told: dict[str, str] = {}  # by teller, the newest last

    def told(self, by: str, address: str, own: Collection[str]) -> Change:
        """The peer `by`, which has proven that it belongs to the run, sees us at `address`.

        It replaces what the same peer told before: our NAT has another mapping now. `own`: the addresses of our own
        sockets; seen there, we are not behind a NAT for this peer.
        """
        seen = proper_address(address)
        if seen is None:
            return Change()
        self._told.pop(by, None)
        if seen not in {proper_address(one) for one in own}:
            self._told[by] = seen
        return self._publish()

    def _publish(self) -> Change:
        # Private ones only where there are no others: behind two NATs the inner one is of no use outside.
        known = _newest(self._told.values())
        chosen = [address for address in known if not _is_private(address)] or known
        before, self.published = self.published, tuple(chosen[-MAX_KEPT:])
        return Change(
            add=tuple(address for address in self.published if address not in before),
            remove=tuple(address for address in before if address not in self.published),
        )


def _newest(addresses: Iterable[str]) -> list[str]:
    """Each once, where it was told last."""
    return list(dict.fromkeys(reversed(list(addresses))))[::-1]


def _is_private(address: str) -> bool:
    return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_private
