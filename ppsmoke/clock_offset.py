"""How far another machine's clock is from ours, from messages that went there and back. Pure.

The four time stamps and the arithmetic are those of NTP (RFC 5905, section 8). Of several exchanges the one with the
least round trip errs least: whatever made the others slower may have done so on one of the two ways only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

DRIFT = 1e-4
"""Seconds a second by which two clocks may run apart: twice what the crystals of ordinary machines do."""

UNKNOWN_S = 1.0
"""How far off an offset may be that was taken from a single message one way."""

_KEPT = 64


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and its answer: `sent` and `back` on our clock, `received` and `replied` on theirs. Seconds."""

    sent: float
    received: float
    replied: float
    back: float

    @property
    def round_trip(self) -> float:
        """Without the time that the answer took to make."""
        return (self.back - self.sent) - (self.replied - self.received)

    @property
    def offset(self) -> float:
        """What their clock reads more than ours, if both ways took as long."""
        return ((self.received - self.sent) + (self.replied - self.back)) / 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """Their clock reads `offset` more than ours, give or take `within`, from an exchange of `round_trip`. Seconds."""

    offset: float
    within: float
    round_trip: float

    def ours(self, theirs: float) -> float:
        """A reading of their clock, on ours.

        An offset that may be none is none: processes of one machine share its clock, and an error of a busy moment must
        not come between them. Clocks of two machines, which count from their starts, are never that close.
        """
        return theirs if abs(self.offset) <= self.within else theirs - self.offset


class ClockOffset:
    """The newest exchanges with one peer, and the best of them for a moment."""

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=_KEPT)

    def add(self, exchange: Exchange) -> bool:
        """False for one that cannot have been: an answer before its question."""
        if exchange.back < exchange.sent or exchange.replied < exchange.received or exchange.round_trip < 0:
            return False
        self._exchanges.append(exchange)
        return True

    def estimate(self, theirs: float) -> Estimate | None:
        """For what happened when their clock read `theirs`: an exchange long before or after it may be off by the
        drift meanwhile. None before there was any."""
        found = [
            Estimate(e.offset, e.round_trip / 2 + DRIFT * abs(theirs - e.replied), e.round_trip)
            for e in self._exchanges
        ]
        return min(found, key=lambda estimate: estimate.within, default=None)


def one_way(sent: float, received: float) -> Estimate:
    """All that a single message tells, `sent` on their clock and `received` on ours."""
    return Estimate(sent - received, UNKNOWN_S, UNKNOWN_S)
