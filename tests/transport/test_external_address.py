"""What a process publishes of what its peers say they see."""

from __future__ import annotations

import pytest

from ppsmoke.transport.external_address import MAX_KEPT, Change, ExternalAddresses, proper_address

OWN = ("10.0.1.2:4000", "[fd00::2]:4000")


@pytest.mark.parametrize(
    ("text", "proper"),
    [
        ("203.0.113.9:4000", "203.0.113.9:4000"),
        ("[::ffff:203.0.113.9]:4000", "203.0.113.9:4000"),
        ("[2001:db8::1]:4000", "[2001:db8::1]:4000"),
        *((text, None) for text in ("203.0.113.9", "203.0.113.9:0", "203.0.113.9:70000", "x:1", ":1", "", "1:²")),
        *((text, None) for text in ("127.0.0.1:40", "[::1]:40", "0.0.0.0:40", "224.0.0.1:40", "[fe80::1]:40")),
        ("https://relay.example/", None),
    ],
)
def test_an_address_is_one_that_another_machine_could_send_to(text: str, proper: str | None) -> None:
    assert proper_address(text) == proper


def test_what_a_peer_sees_is_published_once_however_many_see_it() -> None:
    known = ExternalAddresses()
    assert known.told("a", "203.0.113.9:4000", OWN) == Change(add=("203.0.113.9:4000",))
    assert known.told("b", "203.0.113.9:4000", OWN) == Change()
    assert known.told("a", "203.0.113.9:4000", OWN) == Change()
    assert known.published == ("203.0.113.9:4000",)


def test_who_is_seen_at_an_address_of_its_own_is_behind_no_nat() -> None:
    known = ExternalAddresses()
    assert known.told("a", "10.0.1.2:4000", OWN) == Change()
    assert known.told("b", "[::ffff:10.0.1.2]:4000", OWN) == Change()
    assert known.published == ()


def test_a_new_mapping_takes_the_place_of_the_old_one() -> None:
    known = ExternalAddresses()
    known.told("a", "203.0.113.9:4000", OWN)
    known.told("b", "203.0.113.9:4000", OWN)
    assert known.told("a", "203.0.113.9:5000", OWN) == Change(add=("203.0.113.9:5000",))  # b may be reached as before
    assert known.told("b", "203.0.113.9:5000", OWN) == Change(remove=("203.0.113.9:4000",))
    assert known.told("a", "10.0.1.2:4000", OWN) == Change()
    assert known.told("b", "10.0.1.2:4000", OWN) == Change(remove=("203.0.113.9:5000",))


def test_only_the_newest_are_published() -> None:
    known = ExternalAddresses()
    for n in range(MAX_KEPT):
        known.told(f"peer {n}", f"203.0.113.9:{4000 + n}", OWN)
    known.told("peer 0", "203.0.113.9:4000", OWN)  # told again: the newest of all
    change = known.told("another", "203.0.113.9:4999", OWN)
    assert change == Change(add=("203.0.113.9:4999",), remove=("203.0.113.9:4001",))
    assert len(known.published) == MAX_KEPT


def test_private_addresses_count_only_where_there_are_no_others() -> None:
    known = ExternalAddresses()
    assert known.told("a", "192.168.7.1:4000", OWN) == Change(add=("192.168.7.1:4000",))
    assert known.told("b", "8.8.8.8:4000", OWN) == Change(add=("8.8.8.8:4000",), remove=("192.168.7.1:4000",))
    assert known.told("b", "10.0.1.2:4000", OWN) == Change(add=("192.168.7.1:4000",), remove=("8.8.8.8:4000",))


def test_nonsense_changes_nothing() -> None:
    known = ExternalAddresses()
    known.told("a", "203.0.113.9:4000", OWN)
    assert known.told("a", "nonsense", OWN) == Change()
    assert known.published == ("203.0.113.9:4000",)
