"""Bytes sent over a connection for nothing but its pace.

QUIC begins slowly: some 15 kB in the first round trip, and twice as much in each further one. At 200 ms a prompt of
2,000 tokens would spend two seconds on that. A connection that has carried so much before carries it at once.
"""

from __future__ import annotations

import logging

from ppsmoke.edges.lanes import LONG_ROUND_TRIP_S
from ppsmoke.errors import PpError
from ppsmoke.paths.probe import measure
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

MAX_WARM_UP_BYTES = 2 << 20
_WARM_UP_S = 5.0


async def warm_up(mesh: Mesh, peer: str, round_trip_s: float, size: int, sent: int) -> None:
    """Send `size` bytes to `peer` where that pays: a long way, on which fewer than that were `sent`.

    Never raises, takes 5 s at most.
    """
    if round_trip_s < LONG_ROUND_TRIP_S or size <= sent:
        return
    try:
        way = await measure(mesh, peer, size, _WARM_UP_S)
    except PpError as error:
        log.info("the way to %s was not warmed up: %s", mesh.name_of(peer), error)
        return
    log.info("%d bytes to %s in advance: %.0f bytes/s", size, mesh.name_of(peer), way.bytes_per_s or 0.0)
