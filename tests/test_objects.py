"""Objects on an edge: the record survives the wire, and every damage to it is an EdgeFaulted with a reason."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ppsmoke.errors import EdgeFaulted
from ppsmoke.messages import ObjectSpec
from ppsmoke.objects import (
    HEADER,
    StreamObject,
    begins_request,
    decode_object,
    encode_header,
    finish_reason,
    token_payload,
)
from tests.samples import EOS, REQUEST, generation, token_object

TOKENS = ObjectSpec(payload="tokens", max_extent=32 * 4)
HIDDEN = ObjectSpec(payload="hidden", hidden_dim=16, max_extent=32 * 16 * 4)

FIELDS = ("magic", "version", "flags", "edge_id", "request_id", "sequence", "part", "position", "seq_len", "size")


def record(obj: StreamObject) -> bytes:
    return encode_header(obj) + obj.payload


def with_header(**changes: int) -> bytes:
    """A record of two tokens some of whose header fields were overwritten."""
    whole = record(token_object(7, 8))
    fields = dict(zip(FIELDS, HEADER.unpack_from(whole), strict=True)) | changes
    return HEADER.pack(*fields.values()) + whole[HEADER.size :]


def hidden_object(rows: int, **changes: object) -> StreamObject:
    fields = {"edge_id": 3, "sequence": 0, "position": 0, "payload": bytes(range(64)) * rows} | changes
    return StreamObject(request_id=REQUEST, seq_len=rows, **fields)


@pytest.mark.parametrize(
    "obj",
    [
        token_object(1),
        token_object(*range(32)),
        token_object(5, 6, part=3, last_part=False, position=12),
        token_object(2**31 - 1, sequence=2**32 - 1, position=2**32 - 1),
        token_object(9, sequence=4, finish_reason="max_tokens"),
        token_object(EOS, sequence=4, finish_reason="eos"),
    ],
    ids=lambda obj: obj.describe(),
)
def test_token_objects_survive_the_wire(obj: StreamObject) -> None:
    assert decode_object(record(obj), TOKENS) == obj


@pytest.mark.parametrize("rows", [1, 2, 32])
def test_activations_survive_the_wire(rows: int) -> None:
    obj = hidden_object(rows, is_prefill=rows > 1, position=4)
    assert decode_object(record(obj), HIDDEN) == obj


def test_the_header_has_the_documented_layout() -> None:
    header = encode_header(replace(token_object(7, part=2, position=3), edge_id=5, finish_reason="eos"))
    assert len(header) == HEADER.size == 48
    assert header[:4] == bytes([0x50, 0x50, 1, 0b1111])
    assert header[4:8] == (5).to_bytes(4, "little")
    assert header[8:24].hex() == REQUEST
    assert [int.from_bytes(header[at : at + 4], "little") for at in (24, 28, 32, 36)] == [0, 2, 3, 1]
    assert int.from_bytes(header[40:], "little") == 4


def test_tokens_are_little_endian_int32() -> None:
    assert token_payload([1, 2**31 - 1]) == bytes([1, 0, 0, 0, 255, 255, 255, 127])
    assert token_object(1, 2, 300).tokens == [1, 2, 300]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "shorter than its 48-byte header"),
        (record(token_object(1))[:47], "shorter than its 48-byte header"),
        (with_header(magic=0x5051), "not an object record"),
        (with_header(version=2), "not an object record"),
        (with_header(flags=0b1_0001), "unknown flags"),
        (with_header(flags=0b1000_0001), "unknown flags"),
        (with_header(flags=0b1001), "why its request ended"),
        (with_header(seq_len=0), "0 positions"),
        (with_header(seq_len=1), "1 positions should carry 4 bytes, not 8"),
        (with_header(seq_len=3), "3 positions should carry 12 bytes, not 8"),
        (with_header(seq_len=2**32 - 1), "should carry"),
        (with_header(size=7), "says 7 payload bytes and carries 8"),
        (with_header(size=2**64 - 1), "and carries 8"),
        (record(token_object(1, 2))[:-1], "says 8 payload bytes and carries 7"),
        (record(token_object(1, 2)) + b"x", "says 8 payload bytes and carries 9"),
        (record(token_object(*range(33))), "over the edge's limit of 128"),
        (record(replace(token_object(), seq_len=0)), "0 positions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_record_faults_the_edge_with_its_reason(damaged: bytes, reason: str) -> None:
    with pytest.raises(EdgeFaulted, match=reason):
        decode_object(damaged, TOKENS)


def test_a_record_of_another_payload_kind_is_refused() -> None:
    with pytest.raises(EdgeFaulted, match="should carry"):
        decode_object(record(token_object(1, 2)), HIDDEN)
    with pytest.raises(EdgeFaulted, match="should carry"):
        decode_object(record(hidden_object(1)), TOKENS)


def test_random_bytes_are_an_object_or_an_edge_fault() -> None:
    rng = random.Random(1)
    whole = record(token_object(1, 2))
    for _ in range(2000):
        damaged = bytearray(whole[: rng.choice([len(whole), len(whole), rng.randrange(len(whole))])])
        for _ in range(rng.randrange(4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            obj = decode_object(bytes(damaged), TOKENS)
        except EdgeFaulted:
            continue
        assert record(obj) == bytes(damaged)


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (token_object(1), "sequence 0 of request 11111111"),
        (token_object(1, sequence=7), "sequence 7 of request 11111111"),
        (token_object(1, part=2), "sequence 0 part 2 of request 11111111"),
        (token_object(1, last_part=False), "sequence 0 part 0 of request 11111111"),
    ],
)
def test_an_object_names_its_place_in_errors(obj: StreamObject, words: str) -> None:
    assert obj.describe() == words


@pytest.mark.parametrize(
    ("token", "tokens_so_far", "reason"),
    [(9, 1, None), (9, 4, None), (9, 5, "max_tokens"), (9, 6, "max_tokens"), (EOS, 1, "eos"), (EOS, 5, "eos")],
)
def test_a_request_ends_by_an_end_token_or_the_limit(token: int, tokens_so_far: int, reason: str | None) -> None:
    assert finish_reason(token, tokens_so_far, generation(max_tokens=5)) == reason


@pytest.mark.parametrize(("most", "reason"), [(3, "max_tokens"), (9, None), (None, None)])
def test_a_request_may_have_a_limit_of_its_own(most: int | None, reason: str | None) -> None:
    assert finish_reason(9, 3, generation(max_tokens=5), most=most) == reason


@pytest.mark.parametrize(
    ("place", "begins"), [((0, 0), True), ((0, 1), False), ((1, 0), False), ((2**32 - 1, 0), False)]
)
def test_the_first_object_of_a_request_is_told_by_its_bytes(place: tuple[int, int], begins: bool) -> None:
    sequence, part = place
    assert begins_request(record(token_object(1, sequence=sequence, part=part, position=7))) is begins


def test_done_is_to_have_a_finish_reason() -> None:
    assert not token_object(1).done
    assert token_object(1, finish_reason="eos").done
