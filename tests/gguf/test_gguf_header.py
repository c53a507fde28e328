"""Malformed headers, made by hand: each is one clear sentence that says what and where."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ppsmoke.errors import GgufMalformed, GgufTruncated, UnsupportedModel
from ppsmoke.gguf_header import GgufHeader, parse_header

U32, STRING, ARRAY, F32 = 4, 8, 9, 0
U64_MAX = (1 << 64) - 1


def text(value: bytes | str) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, shape: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    *,
    version: int = 3,
    entries: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    counts: tuple[int, int] | None = None,
    data: int = 0,
) -> bytes:
    tensor_count, entry_count = counts or (len(tensors), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, entry_count) + b"".join((*entries, *tensors))
    return head + bytes(-len(head) % 32 + data)


def parse(file: bytes) -> GgufHeader:
    return parse_header(lambda offset, length: file[offset : offset + length], len(file), where="model.gguf")


@pytest.mark.parametrize("version", [2, 3])
def test_a_small_file(version: int) -> None:
    file = gguf(
        version=version,
        entries=(
            entry("general.alignment", U32, struct.pack("<I", 32)),
            entry("words", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("é")),
            entry("yes", 7, b"\x01"),
            entry("half", 12, struct.pack("<d", 0.5)),
            entry("minus", 11, struct.pack("<q", -3)),
            entry("pairs", ARRAY, struct.pack("<IQ", ARRAY, 1) + struct.pack("<IQ2h", 3, 2, 7, -7)),
        ),
        tensors=(tensor("x", (4, 2)), tensor("y", (32,), 8, 32)),
        data=32 + 34,
    )
    header = parse(file)
    assert header.metadata == {
        "general.alignment": 32,
        "words": ["a", "é"],
        "yes": True,
        "half": 0.5,
        "minus": -3,
        "pairs": [[7, -7]],
    }
    assert header.version == version
    assert header.tensors["x"].shape == (4, 2)
    assert header.tensors["x"].nbytes == 32
    assert header.tensors["y"].offset == header.nbytes + 32
    assert header.tensors["y"].nbytes == 34


@pytest.mark.parametrize("window", [9, 64, 1 << 20])
def test_an_array_of_texts_is_read_across_windows_and_decoded_when_it_is_looked_at(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppsmoke.gguf_header._READ_CHUNK_BYTES", window)
    words = ["", "a", "é" * 40, "last"]
    stored = b"".join(map(text, words[:-1])) + text(b"l\xffst")
    array = struct.pack("<IQ", STRING, len(words)) + stored
    header = parse(gguf(entries=(entry("words", ARRAY, array), entry("after", U32, struct.pack("<I", 7)))))
    found = header.metadata["words"]
    assert len(found) == 4
    assert [*found] == [*words[:-1], "l\ufffdst"]
    assert (found[1], found[:2], found[-1]) == ("a", ["", "a"], "l\ufffdst")
    assert found == [*words[:-1], "l\ufffdst"]
    assert found != words
    assert header.metadata["after"] == 7


def test_any_cut_is_reported_and_never_read_past() -> None:
    whole = gguf(
        entries=(entry("words", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("b")),),
        tensors=(tensor("x", (4, 2)),),
        data=32,
    )
    parse(whole)
    for length in range(len(whole)):
        with pytest.raises(GgufMalformed):
            parse(whole[:length])


def test_the_reader_asks_for_no_more_than_the_head() -> None:
    file = gguf(tensors=(tensor("x", (1 << 20,)),), data=4 << 20)
    asked: list[int] = []

    def read_at(offset: int, length: int) -> bytes:
        asked.append(offset + length)
        return file[offset : offset + length]

    parse_header(read_at, len(file), where="model.gguf")
    assert max(asked) <= 1 << 20


def nested(depth: int) -> bytes:
    return struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)


MALFORMED: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", GgufMalformed, "is empty"),
    "html": (b"<!DOCTYPE html><html>", GgufMalformed, "looks like an HTML"),
    "magic": (b"GGML" + bytes(60), GgufMalformed, "not a GGUF file"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(16), GgufMalformed, "big-endian"),
    "version 1": (gguf(version=1), GgufMalformed, "version 1; supported are 2 and 3"),
    "version 4": (gguf(version=4), GgufMalformed, "version 4"),
    "tensor count": (gguf(counts=(U64_MAX, 0)), GgufMalformed, "tensors, too many"),
    "metadata count": (gguf(counts=(0, 1 << 40)), GgufMalformed, "metadata entries, too many"),
    "key past the end": (
        gguf(counts=(0, 1), entries=(struct.pack("<Q", 1 << 50),), data=64),
        GgufTruncated,
        "inside metadata entry 0",
    ),
    "string past the end": (
        gguf(entries=(entry("k", STRING, struct.pack("<Q", U64_MAX)),), data=64),
        GgufTruncated,
        "'k'",
    ),
    "array past the end": (
        gguf(entries=(entry("k", ARRAY, struct.pack("<IQ", U32, 1 << 60)),), data=64),
        GgufTruncated,
        "'k'",
    ),
    "value type": (gguf(entries=(entry("k", 99, bytes(8)),)), GgufMalformed, "unknown type 99"),
    "array type": (
        gguf(entries=(entry("k", ARRAY, struct.pack("<IQ", 77, 1)),), data=64),
        GgufMalformed,
        "unknown type 77",
    ),
    "nesting": (gguf(entries=(entry("k", ARRAY, nested(3000)),)), GgufMalformed, "deeper than"),
    "key twice": (
        gguf(entries=(entry("k", U32, bytes(4)), entry("k", U32, bytes(4)))),
        GgufMalformed,
        "'k' is there twice",
    ),
    "key not UTF-8": (gguf(entries=(text(b"\xff\xfe") + bytes(8),)), GgufMalformed, "not valid UTF-8"),
    "alignment": (
        gguf(entries=(entry("general.alignment", U32, struct.pack("<I", 24)),)),
        GgufMalformed,
        "general.alignment is 24",
    ),
    "tensor twice": (gguf(tensors=(tensor("x", (8,)), tensor("x", (8,))), data=32), GgufMalformed, "listed twice"),
    "no axes": (gguf(tensors=(tensor("x", ()),), data=32), GgufMalformed, "0 axes"),
    "many axes": (gguf(tensors=(tensor("x", (1,) * 9),), data=32), GgufMalformed, "9 axes"),
    "zero axis": (gguf(tensors=(tensor("x", (8, 0)),), data=32), GgufMalformed, "impossible shape"),
    "dims overflow": (
        gguf(tensors=(tensor("x", (1 << 40, 1 << 40)),), data=32),
        GgufMalformed,
        "impossible shape",
    ),
    "not whole blocks": (gguf(tensors=(tensor("x", (33,), 8),), data=64), GgufMalformed, "not a multiple of the 32"),
    "offset": (gguf(tensors=(tensor("x", (8,), F32, 7),), data=64), GgufMalformed, "offset 7"),
    "beyond the file": (gguf(tensors=(tensor("x", (9,)),), data=32), GgufTruncated, "tensor 'x' ends at byte"),
    "far beyond": (gguf(tensors=(tensor("x", (8,), F32, 1 << 63),), data=32), GgufTruncated, "tensor 'x'"),
    "unknown tensor type": (gguf(tensors=(tensor("x", (8,), 200),)), UnsupportedModel, "number 200"),
    "unreadable tensor type": (
        gguf(tensors=(tensor("x", (32,), 24),)),
        UnsupportedModel,
        "type I8; supported are BF16",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_headers(case: str) -> None:
    file, error, message = MALFORMED[case]
    with pytest.raises(error, match=message) as caught:
        parse(file)
    assert "model.gguf" in str(caught.value)


@pytest.mark.parametrize("flip", [lambda byte: byte ^ 0xFF, lambda byte: (byte + 1) % 256, lambda byte: 0])
def test_no_flipped_byte_escapes_as_another_exception(flip: Callable[[int], int]) -> None:
    whole = gguf(
        entries=(
            entry("general.alignment", U32, struct.pack("<I", 32)),
            entry("words", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("b")),
        ),
        tensors=(tensor("x", (4, 2)), tensor("y", (32,), 8, 32)),
        data=32 + 34,
    )
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] = flip(broken[position])
        try:
            parse(bytes(broken))
        except (GgufMalformed, UnsupportedModel):
            continue
