"""BLAKE3's key derivation for short material: what a relay has its clients sign. Pure.

After the BLAKE3 paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020), sections 2.2 to 2.4, for one block of input.
"""

from __future__ import annotations

import struct

BLOCK_BYTES = 64

_IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_CHUNK_START, _CHUNK_END, _ROOT, _CONTEXT, _MATERIAL = 1, 2, 8, 32, 64
_ROUNDS = 7
_MIXED = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),  # columns
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),  # diagonals
)


def derive_key(context: str, material: bytes) -> bytes:
    """32 bytes. ValueError for a context or a material of more than BLOCK_BYTES bytes."""
    context_key = _hash(context.encode(), _IV, _CONTEXT)
    return struct.pack("<8I", *_hash(material, context_key, _MATERIAL))


def _hash(data: bytes, key: tuple[int, ...], flags: int) -> tuple[int, ...]:
    """Of one block that is a whole chunk and the root of its tree."""
    if len(data) > BLOCK_BYTES:
        raise ValueError(f"{len(data)} bytes are more than one block of {BLOCK_BYTES}")
    words = list(struct.unpack("<16I", data.ljust(BLOCK_BYTES, b"\0")))
    state = [*key, *_IV[:4], 0, 0, len(data), flags | _CHUNK_START | _CHUNK_END | _ROOT]
    for _ in range(_ROUNDS):
        for index, places in enumerate(_MIXED):
            _mix(state, places, words[2 * index], words[2 * index + 1])
        words = [words[place] for place in _PERMUTATION]
    return tuple(state[i] ^ state[i + 8] for i in range(8))


def _mix(state: list[int], places: tuple[int, int, int, int], first: int, second: int) -> None:
    a, b, c, d = places
    for word, turn_d, turn_b in ((first, 16, 12), (second, 8, 7)):
        state[a] = (state[a] + state[b] + word) & 0xFFFFFFFF
        state[d] = _turned(state[d] ^ state[a], turn_d)
        state[c] = (state[c] + state[d]) & 0xFFFFFFFF
        state[b] = _turned(state[b] ^ state[c], turn_b)


def _turned(word: int, bits: int) -> int:
    return (word >> bits | word << (32 - bits)) & 0xFFFFFFFF
