"""Relays as a caller of them needs to know them: which there are, and whether one can be used."""

from ppsmoke.relays.check import (
    PUBLIC_RELAYS,
    RelayAnswer,
    check_relay_token,
    check_relay_url,
    usable_relays,
)

__all__ = ["PUBLIC_RELAYS", "RelayAnswer", "check_relay_token", "check_relay_url", "usable_relays"]
