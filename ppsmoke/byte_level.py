"""The alphabet of byte-level BPE: every byte has one printable character, and tokens are written in these."""

from __future__ import annotations


def _alphabet() -> tuple[str, ...]:
    # Printable Latin-1 stands for itself; the other bytes, in order, for the characters from 256 on.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return tuple(chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256))


BYTE_TO_CHAR: tuple[str, ...] = _alphabet()
CHAR_TO_BYTE: dict[str, int] = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
