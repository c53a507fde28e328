"""What a relay has its clients sign."""

from __future__ import annotations

import pytest

from ppsmoke.relays.derived_key import derive_key


def test_it_is_blake3s_key_derivation() -> None:
    """Made with the `blake3` package: derive_key_context, 16 bytes of material."""
    made = derive_key("iroh-relay handshake v1 challenge signature", bytes(range(16)))
    assert made.hex() == "b7b16e505d2cb5dbaf494800092c3b05a6c45d8d3fd4f1b888c6a77240b876c0"


def test_more_than_one_block_is_refused_instead_of_derived_wrongly() -> None:
    assert len(derive_key("c" * 64, bytes(64))) == 32
    for context, material in (("c" * 65, b""), ("c", bytes(65))):
        with pytest.raises(ValueError, match="65 bytes are more than one block"):
            derive_key(context, material)
