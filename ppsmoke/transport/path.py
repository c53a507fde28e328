"""The way that a connection's packets take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppsmoke.iroh_fix import IROH_ERRORS


@dataclass(frozen=True, slots=True)
class Path:
    """How a connection reaches its peer: through a relay, or at `address` ("ip:port").

    `rtt_s`: as QUIC measures it, None below its resolution of 1 ms.
    """

    relay: bool
    address: str
    rtt_s: float | None


def path_of(connection: Any) -> Path | None:
    """The path in use; None when there is none just now. It asks nobody and may be called often."""
    chosen = path_in_use(connection)
    if chosen is None:
        return None
    return Path(chosen.is_relay, str(chosen.remote_addr), chosen.rtt_ms / 1000 if chosen.rtt_ms else None)


def path_in_use(connection: Any) -> Any | None:
    """The library's own record of it, with its statistics."""
    try:
        paths = connection.paths()
    except IROH_ERRORS:
        return None
    return next((path for path in paths if path.is_selected), paths[0] if paths else None)
