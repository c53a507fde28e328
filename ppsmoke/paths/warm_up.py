"""Bytes sent over a connection for nothing but its pace.

QUIC begins slowly: some 15 kB in the first round trip, and twice as much in each further one. It also spreads what it
sends over the round trip: 1.25 windows in each, a burst of 10 packets aside (so does noq, the library's transport). A
window of just the prompt's size would have the prompt take a round trip more at every stage; one of eight times that, a
tenth of one. A window that has grown stays so while nothing is sent.
"""

from __future__ import annotations

import logging

from ppsmoke.edges.lanes import LONG_ROUND_TRIP_S
from ppsmoke.errors import PpError
from ppsmoke.paths.probe import send_bulk
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

MAX_WARM_UP_BYTES = 2 << 20
_PROMPTS = 8
_WARM_UP_S = 5.0


def warm_up_bytes(prompt_bytes: int) -> int:
    """What to send in advance of `prompt_bytes`."""
    return min(MAX_WARM_UP_BYTES, _PROMPTS * prompt_bytes)


async def warm_up(mesh: Mesh, peer: str, round_trip_s: float, size: int, sent: int) -> None:
    """Send `size` bytes to `peer` where that pays: a long way, on which fewer than that were `sent`.

    Never raises, takes 5 s at most.
    """
    if round_trip_s < LONG_ROUND_TRIP_S or size <= sent:
        return
    try:
        took_s = await send_bulk(mesh, peer, size, _WARM_UP_S)
    except PpError as error:
        log.info("the way to %s was not warmed up: %s", mesh.name_of(peer), error)
        return
    log.info("%d bytes to %s in advance took %.2f s", size, mesh.name_of(peer), took_s)
