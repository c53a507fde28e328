"""A member's address as the bytes of its membership record.

A ticket is the word `endpoint` and its bytes in base32; the record has the bytes. Where a machine has so many addresses
that they do not fit, those named last are left out: the relay and the first ones find it.
"""

from __future__ import annotations

import base64
import binascii

from ppsmoke.iroh_fix import iroh
from ppsmoke.membership.swim import MAX_ADDRESS_BYTES
from ppsmoke.transport.endpoint import TicketInvalid, parse_ticket

_WORD = "endpoint"


def pack_address(ticket: str) -> bytes:
    """At most MAX_ADDRESS_BYTES. Raises TicketInvalid for what is no ticket."""
    packed = _bytes_of(ticket)
    if len(packed) <= MAX_ADDRESS_BYTES:
        return packed
    _, address = parse_ticket(ticket)
    direct = list(address.direct_addresses())
    while direct and len(packed) > MAX_ADDRESS_BYTES:
        direct.pop()
        shorter = iroh.EndpointAddr(address.id(), address.relay_url(), direct)
        packed = _bytes_of(str(iroh.EndpointTicket.from_addr(shorter)))
    return packed


def unpack_address(packed: bytes) -> str:
    """The ticket; whether it is a proper one shows when it is parsed."""
    return _WORD + base64.b32encode(packed).decode().rstrip("=").lower()


def _bytes_of(ticket: str) -> bytes:
    text = ticket.removeprefix(_WORD).upper()
    try:
        return base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise TicketInvalid("not an endpoint address: it is no base32") from None
