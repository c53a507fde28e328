from __future__ import annotations

import random

import pytest

from ppsmoke.membership.swim import MAX_ADDRESS_BYTES, MAX_MESSAGE_BYTES, wire
from ppsmoke.membership.swim.wire import Claim, Kind, NameRecord, WireError, decode
from tests.membership.swim.kit import CLUSTER, claim, message, node

BODIES = [
    (Kind.PING, wire.encode_ping(7, 1), wire.Ping(7, 1)),
    (Kind.ACK, wire.encode_ping(2**32 - 1, 2), wire.Ping(2**32 - 1, 2)),
    (Kind.PING_REQ, wire.encode_ping_req(9, node(3), 350), wire.PingReq(9, node(3), 350)),
    (Kind.NACK, wire.encode_nack(5), 5),
    (Kind.ASK, wire.encode_ask([node(1), node(2)]), wire.Ask((node(1), node(2)))),
    (Kind.ASK, b"", wire.Ask(())),
    (Kind.COMPARE, wire.encode_compare(node(0), node(9)), wire.Compare(node(0), node(9))),
    (Kind.NAMES_DIGEST, b"12345678", b"12345678"),
    (Kind.REFUSE, wire.encode_refusal("no stränger"), "no stränger"),
    (Kind.NEWS, b"", None),
]
NAME = NameRecord("pp-stage-1", node(2), 102, 3, 4, True)


@pytest.mark.parametrize(("kind", "body", "read"), BODIES)
def test_every_body_survives_the_wire(kind: Kind, body: bytes, read: object) -> None:
    got = decode(message(4, kind, body, incarnation=6), 1, CLUSTER)
    assert (got.kind, got.incarnation, got.life, got.body) == (kind, 6, 104, read)


@pytest.mark.parametrize(
    "said",
    [
        claim(1),
        claim(0, "alive", 5, stage_index=None),
        claim(1, "suspect", 3, accuser=node(4)),
        claim(1, "dead", 2**63 - 1),
        claim(1, "left", address=b""),
        claim(1, address=b"x" * MAX_ADDRESS_BYTES),
        claim(1, "suspect", accuser=node(4), address=b"y", life=2**64 - 1, stage_index=32767),
    ],
)
def test_every_claim_survives_the_wire_and_is_as_long_as_said(said: Claim) -> None:
    assert decode(message(4, claims=[said, claim(3)]), 1, CLUSTER).claims == (said, claim(3))
    assert len(wire.encode_claim(said)) == wire.claim_bytes(said)


@pytest.mark.parametrize(("answer", "first", "last"), [(True, "", "pp-x"), (False, "a", "")])
def test_names_survive_the_wire(answer: bool, first: str, last: str) -> None:
    records = (NAME, NAME._replace(name="x" * 64, held=False, version=2**63 - 1))
    body = wire.encode_names(answer, first, last, map(wire.encode_name, records))
    assert decode(message(4, Kind.NAMES, body), 1, CLUSTER).body == wire.Names(answer, first, last, records)


def test_a_question_about_too_many_is_cut_to_what_fits() -> None:
    data = message(4, Kind.ASK, wire.encode_ask([node(1)] * 100))
    assert MAX_MESSAGE_BYTES - 32 < len(data) <= MAX_MESSAGE_BYTES
    decode(data, 1, CLUSTER)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"SW\x01", "malformed"),
        (b"x" * 28, "malformed"),
        (b"x" * (MAX_MESSAGE_BYTES + 1), "oversized"),
        (message(1, cluster=b"another1"), "cluster"),
        (message(1, version=2), "version"),
        (message(1, Kind.PING), "malformed"),
        (message(1, Kind.PING, b"123"), "malformed"),
        (message(1, Kind.NAMES_DIGEST, b"1234567"), "malformed"),
        (message(1, Kind.ASK, b"x" * 33), "malformed"),
        (message(1, Kind.NEWS, b"x"), "malformed"),
        (message(1, Kind.NEWS, b"\xff" * 51), "malformed"),
        (message(1, Kind.NEWS, wire.encode_claim(claim(1))[:-1]), "malformed"),
        (message(1, claims=[claim(1, incarnation=2**63)]), "malformed"),
        (message(1, claims=[claim(1, address=b"x" * (MAX_ADDRESS_BYTES + 1))]), "malformed"),
        (message(1, Kind.NAMES, b""), "malformed"),
        (message(1, Kind.NAMES, wire.encode_names(False, "", "", [b"\x00" + b"x" * 57])), "malformed"),
        (message(1, Kind.NAMES, wire.encode_names(False, "A", "", [])), "malformed"),
        (message(1, Kind.NAMES, b"\x00\x41" + b"a" * 65 + b"\x00"), "malformed"),
        (
            message(1, Kind.NAMES, wire.encode_names(False, "", "", [wire.encode_name(NAME._replace(version=2**63))])),
            "malformed",
        ),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(data, 1, CLUSTER)
    assert caught.value.reason == reason


def test_a_message_of_an_unknown_kind_is_refused() -> None:
    data = bytearray(message(1))
    data[11] = 99
    with pytest.raises(WireError, match="unknown kind 99"):
        decode(bytes(data), 1, CLUSTER)


@pytest.mark.parametrize("fields", [{"version": 2}, {"cluster": b"another1"}])
def test_a_refusal_is_understood_whatever_version_or_cluster_it_comes_from(fields: dict[str, object]) -> None:
    data = message(1, Kind.REFUSE, b"no", **fields)  # type: ignore[arg-type]
    assert decode(data, 1, CLUSTER).body == "no"


def test_a_refusal_brings_no_control_characters_into_a_log() -> None:
    got = decode(message(1, Kind.REFUSE, b"a\x1b[31m\nb\xff"), 1, CLUSTER)
    assert got.body == "a?[31m?b\ufffd"


@pytest.mark.parametrize("fields", [{"version": 2}, {"cluster": b"another1"}])
def test_a_join_that_cannot_be_read_is_known_to_be_one(fields: dict[str, object]) -> None:
    with pytest.raises(WireError) as caught:
        decode(message(1, Kind.JOIN, b"?", **fields), 1, CLUSTER)  # type: ignore[arg-type]
    assert caught.value.kind == Kind.JOIN


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a" * 64, True), ("0f" * 32, True), ("A" * 64, False), ("a" * 63, False), ("a" * 64 + "\n", False)],
)
def test_node_ids_are_64_lower_case_hexadecimal_digits(text: str, is_one: bool) -> None:
    assert wire.is_node_id(text) is is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("pp-stage-0", True), ("", False), ("x" * 65, False), ("A", False), ("ä", False), ("a\n", False)],
)
def test_names_are_short_and_plain(text: str, is_one: bool) -> None:
    assert wire.is_name(text) is is_one


def test_the_decoder_survives_anything() -> None:
    rng = random.Random(4)
    real = [message(2, kind, body, [claim(1), claim(3, "suspect", accuser=node(2))]) for kind, body, _ in BODIES]
    real.append(message(2, Kind.NAMES, wire.encode_names(True, "", "", [wire.encode_name(NAME)])))
    for _ in range(3000):
        data = bytearray(rng.choice(real))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = rng.randrange(len(data) + 1) if rng.random() < 0.3 else len(data)
        garbled = bytes(data[:cut]) + (rng.randbytes(rng.randrange(99)) if rng.random() < 0.3 else b"")
        try:
            got = decode(garbled, 1, CLUSTER)
        except WireError:
            continue
        for said in got.claims:
            wire.encode_claim(said)
