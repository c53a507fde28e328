from __future__ import annotations

import pytest

from ppsmoke.iroh_fix import iroh
from ppsmoke.membership.address import pack_address, unpack_address
from ppsmoke.membership.swim import MAX_ADDRESS_BYTES
from ppsmoke.transport.endpoint import TicketInvalid, parse_ticket
from tests.transport.kit import key_of


def ticket(addresses: int, relay: str | None = None) -> str:
    public = iroh.SecretKey.from_bytes(key_of("a")).public()
    direct = [f"[2001:db8::{index:x}:1]:{40000 + index}" for index in range(addresses)]
    return str(iroh.EndpointTicket.from_addr(iroh.EndpointAddr(public, relay, direct)))


@pytest.mark.parametrize(("addresses", "relay"), [(0, None), (1, None), (2, "https://relay.example./"), (9, None)])
def test_an_address_survives_the_record(addresses: int, relay: str | None) -> None:
    before = ticket(addresses, relay)
    packed = pack_address(before)
    assert len(packed) < len(before)
    assert unpack_address(packed) == before


def test_more_addresses_than_fit_are_left_out_and_the_relay_stays() -> None:
    before = ticket(50, "https://relay.example./")
    packed = pack_address(before)
    assert MAX_ADDRESS_BYTES - 40 < len(packed) <= MAX_ADDRESS_BYTES
    owner, address = parse_ticket(unpack_address(packed))
    assert owner == parse_ticket(before)[0]
    assert "relay.example" in str(address.relay_url())
    assert len(address.direct_addresses()) > 10


def test_what_is_no_ticket_is_refused() -> None:
    with pytest.raises(TicketInvalid):
        pack_address("endpoint!!")
