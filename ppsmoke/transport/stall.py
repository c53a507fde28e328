"""Whether a path is dead although its connection is not: what went out stays without any answer. Pure.

QUIC acknowledges within 25 ms and repeats what is not acknowledged, so a path that lives is never asked for long
without an answer, however busy the program at its other end may be. The library holds on to a dead path for 15 s.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_S = 1.0
ROUND_TRIPS = 8
LOOK_S = 0.25
"""How often to look. A look that comes much later than this was kept from running, and so may the answer have been."""
_LATE_S = 2 * LOOK_S


@dataclass(frozen=True, slots=True)
class PathCounts:
    """Of the path in use: datagrams that went out and came in so far. `round_trip_s`: as measured, 0 when unknown."""

    path: str
    sent: int
    received: int
    round_trip_s: float


class StallWatch:
    """One path's; ask it every LOOK_S."""

    def __init__(self) -> None:
        self._counts: PathCounts | None = None
        self._looked_at = 0.0
        self._quiet_looks = 0
        self._answered_at = 0.0
        self._asked_at: float | None = None
        self._asked_times = 0

    def look(self, counts: PathCounts | None, now: float) -> float | None:
        """Seconds without an answer when that is too long, else None. `counts`: None while there is no path."""
        before, self._counts = self._counts, counts
        late, self._looked_at = now - self._looked_at > _LATE_S, now
        if counts is None or before is None or counts.path != before.path or counts.received != before.received:
            self._quiet_looks = 0
            self._answered_at = now
            self._asked_at, self._asked_times = None, 0
            return None
        self._quiet_looks += 1
        # What follows at once upon something that came may be its mere acknowledgement, which nobody answers.
        if counts.sent != before.sent and self._quiet_looks > 1:
            self._asked_times += 1
            self._asked_at = now if self._asked_at is None else self._asked_at
        if late and self._asked_at is not None:
            self._asked_at = now
        if self._asked_at is None or self._asked_times < 2:
            return None
        limit_s = max(LEAST_S, ROUND_TRIPS * counts.round_trip_s)
        return now - self._answered_at if now - self._asked_at >= limit_s else None
