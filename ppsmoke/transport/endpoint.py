"""One process's QUIC endpoint: its key, its sockets, its address."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Sequence
from typing import Any

from ppsmoke.errors import DeadlineExceeded, EnvironmentFault
from ppsmoke.iroh_fix import IROH_ERRORS, iroh, iroh_text
from ppsmoke.waiting import wait_for

ALPN = b"pp-smoke-run/1"
MAX_TICKET_CHARS = 2048

_CANCELLED_BIND_S = 1.0
"""It takes milliseconds."""

log = logging.getLogger(__name__)


class TicketInvalid(Exception):
    """A string that is not an endpoint's address; the message says why."""


def node_id_of(secret_key: bytes) -> str:
    """The node id (64 hex digits, the public key) of a 32-byte secret key; ValueError for another length."""
    if len(secret_key) != 32:
        raise ValueError(f"a node key has 32 bytes, not {len(secret_key)}")
    return str(iroh.SecretKey.from_bytes(secret_key).public())


def parse_ticket(ticket: str) -> tuple[str, Any]:
    """(node id, iroh address) of a ticket; raises TicketInvalid."""
    if len(ticket) > MAX_TICKET_CHARS:
        raise TicketInvalid(f"an address of {len(ticket)} characters is longer than {MAX_TICKET_CHARS}")
    if not ticket.isascii():
        raise TicketInvalid("not an endpoint address: it has characters that none has")
    try:
        address = iroh.EndpointTicket.from_string(ticket).endpoint_addr()
    except IROH_ERRORS as error:
        raise TicketInvalid(f"not an endpoint address: {iroh_text(error)}") from None
    return str(address.id()), address


def by_relay_alone(ticket: str) -> str:
    """The same endpoint's address without the ways that do not lead through its relay. Raises TicketInvalid."""
    _, address = parse_ticket(ticket)
    return str(iroh.EndpointTicket.from_addr(iroh.EndpointAddr(address.id(), address.relay_url(), [])))


class Endpoint:
    """A bound endpoint. Never two with one key."""

    def __init__(self, endpoint: Any, *, loopback_only: bool, relay_urls: Sequence[str] = ()) -> None:
        self._endpoint = endpoint
        self.node_id = str(endpoint.id())
        self.loopback_only = loopback_only
        self._relay_urls = tuple(relay_urls)
        self._external: list[str] = []
        self._former: set[str] = set()

    @classmethod
    async def bind(
        cls,
        secret_key: bytes,
        *,
        loopback_only: bool,
        relay_urls: Sequence[str] = (),
        relay_token: str = "",
        need_relay: bool = False,
        further_alpns: Sequence[bytes] = (),
        udp_port: int = 0,
        deadline_s: float = 10.0,
    ) -> Endpoint:
        """Bind UDP sockets of both address families; `loopback_only` keeps them off every other interface.

        With relays the address names one of them, if one is reached within `deadline_s` seconds; `need_relay` makes it
        an error when none is, as it is for whoever is to be found through it. `further_alpns`: protocols beside the
        mesh's that incoming connections may speak. `relay_token`: what the relays ask of whom they serve.
        `udp_port`: of the IPv4 socket, where a router leads a public port to it; if it is taken, any.

        Raises EnvironmentFault when the sockets cannot be had, DeadlineExceeded after `deadline_s` seconds.
        """
        node_id_of(secret_key)
        builder = iroh.EndpointBuilder()
        builder.apply_minimal()
        builder.relay_mode(_relay_mode(relay_urls, relay_token))
        builder.alpns([ALPN, *further_alpns])
        builder.secret_key(secret_key)
        if loopback_only:
            # Naming only the IPv4 address would leave an IPv6 socket on every interface.
            builder.bind_addr("127.0.0.1:0")
            if _has_ipv6_loopback():
                builder.bind_addr("[::1]:0")
        elif udp_port and _is_free(udp_port):
            builder.bind_addr(f"0.0.0.0:{udp_port}")
        try:
            bound = await _bound(builder, deadline_s)
            endpoint = cls(bound, loopback_only=loopback_only, relay_urls=relay_urls)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the network endpoint was not bound within {deadline_s:g} s", phase="bind"
            ) from None
        except IROH_ERRORS as error:
            raise EnvironmentFault(
                f"the network endpoint cannot be bound: {iroh_text(error)}",
                remedy="Check that this process may open UDP sockets.",
                phase="bind",
            ) from None
        try:
            if relay_urls:
                await endpoint._need_relay(relay_urls, deadline_s, need_relay)
        except BaseException:
            await endpoint.close()
            raise
        return endpoint

    async def _need_relay(self, relay_urls: Sequence[str], deadline_s: float, needed: bool) -> None:
        if await self._reaches_relay(deadline_s):
            return
        where = ", ".join(relay_urls)
        if needed:
            raise DeadlineExceeded(
                f"no relay was reached within {deadline_s:g} s: {where}",
                remedy="Check the address with --relay-url; machines behind routers are reached through it alone.",
                phase="relay",
            )
        log.warning("no relay was reached within %g s: %s", deadline_s, where)

    async def _reaches_relay(self, deadline_s: float) -> bool:
        try:
            await wait_for(self._endpoint.online(), deadline_s)
        except TimeoutError:
            return False
        return True

    def ticket(self) -> str:
        """The full address of this endpoint, as one word that any peer can dial."""
        address = self._endpoint.addr()
        if self._external or self._former:
            # The library takes a moment to know what it was told.
            address = iroh.EndpointAddr(address.id(), address.relay_url(), self.direct_addresses())
        return str(iroh.EndpointTicket.from_addr(address))

    def direct_addresses(self) -> list[str]:
        """The "ip:port" addresses this endpoint can be reached at."""
        known = [str(address) for address in self._endpoint.addr().direct_addresses()]
        return [address for address in dict.fromkeys([*self._external, *known]) if address not in self._former]

    async def add_external(self, address: str) -> None:
        """We are also reached at this "ip:port", which is none of our sockets: tell it to peers. Never raises."""
        self._former.discard(address)
        if address not in self._external:
            self._external.append(address)
        await self._tell(self._endpoint.add_external_addr(address), address)

    async def remove_external(self, address: str) -> None:
        """We are not any more. Never raises."""
        if address in self._external:
            self._external.remove(address)
            self._former.add(address)
        await self._tell(self._endpoint.remove_external_addr(address), address)

    async def _tell(self, call: Awaitable[Any], address: str) -> None:
        try:
            await call
        except IROH_ERRORS as error:
            log.debug("the external address %s: %s", address, iroh_text(error))

    def ways_to(self, address: Any) -> list[Any]:
        """The iroh address as it is, then with each other relay of ours in place of the one that it names.

        All members of a run have the same relays. When the one that a peer was found through is gone, both sides dial
        through another one, and whoever sends through a relay is found there.
        """
        named = str(address.relay_url() or "").rstrip("/")
        others = [url for url in self._relay_urls if url.rstrip("/") != named] if named else []
        return [address, *(iroh.EndpointAddr(address.id(), url, address.direct_addresses()) for url in others)]

    async def connect(self, address: Any, alpn: bytes | None = None) -> Any:
        """An iroh connection to `address`; may take 30 s against a dead one, so bound it. Raises iroh's errors."""
        return await self._endpoint.connect(address, ALPN if alpn is None else alpn)

    def accept_next(self) -> Awaitable[Any]:
        """The next incoming handshake, None after `close`."""
        accepting: Awaitable[Any] = self._endpoint.accept_next()
        return accepting

    async def close(self, deadline_s: float = 5.0) -> None:
        """Close every connection and the sockets. Never raises, never takes longer than `deadline_s` seconds."""
        try:
            await wait_for(self._endpoint.close(), deadline_s)
        except TimeoutError:
            log.info("the network endpoint did not close within %g s", deadline_s)
        except IROH_ERRORS as error:
            log.debug("closing the network endpoint: %s", iroh_text(error))


async def _bound(builder: Any, deadline_s: float) -> Any:
    """The library's endpoint. A bind that is cancelled half-way would leave its sockets open, so it is waited for."""
    binding = asyncio.ensure_future(builder.bind())
    try:
        return await wait_for(asyncio.shield(binding), deadline_s)
    except BaseException:
        done, _ = await asyncio.wait((binding,), timeout=_CANCELLED_BIND_S)
        if not done:
            binding.cancel()
        elif binding.exception() is None:
            await Endpoint(binding.result(), loopback_only=True).close()
        raise


def _relay_mode(relay_urls: Sequence[str], token: str) -> Any:
    """Only these. Without the QUIC port: a relay asked for an address that it does not tell costs three seconds.

    Raises EnvironmentFault for what is no address of a relay.
    """
    if not relay_urls:
        return iroh.RelayMode.disabled()
    relays = iroh.RelayMap.empty()
    for url in relay_urls:
        try:
            relays.insert(iroh.RelayConfig(url=url, quic_port=None, auth_token=token or None))
        except IROH_ERRORS as error:
            raise EnvironmentFault(
                f"{url} is no address of a relay: {iroh_text(error)}", remedy="Give https://name/ with --relay-url."
            ) from None
    return iroh.RelayMode.custom(relays)


def _is_free(udp_port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("0.0.0.0", udp_port))
        except (OSError, OverflowError) as error:
            log.warning("UDP port %d cannot be bound, another one is taken: %s", udp_port, error)
            return False
    return True


def _has_ipv6_loopback() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
