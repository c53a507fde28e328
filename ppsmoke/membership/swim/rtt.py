"""The round trip to one member: smoothed, with its variation, and the wait that follows from both.

RFC 6298, section 2: SRTT and RTTVAR with gains 1/8 and 1/4, and a timeout of SRTT + 4 * RTTVAR that doubles while
nothing comes back (5.5). A probe's repetition is told apart from the probe in the answer, so every sample is sound
(Karn's rule has nothing to exclude).
"""

from __future__ import annotations

_MAX_S = 60.0
_MAX_BACKOFF = 4


class RoundTrip:
    """guess_s: stands in for a sample until there is one."""

    __slots__ = ("_backoff", "_guess_s", "_smooth_s", "_vary_s")

    def __init__(self, guess_s: float) -> None:
        self._guess_s = guess_s
        self._smooth_s: float | None = None
        self._vary_s = 0.0
        self._backoff = 0

    @property
    def smooth_s(self) -> float | None:
        """None before the first sample."""
        return self._smooth_s

    def sample(self, rtt_s: float) -> None:
        """One measured round trip. What cannot be one is ignored."""
        if not 0 <= rtt_s <= _MAX_S:
            return
        self._backoff = 0
        if self._smooth_s is None:
            self._smooth_s, self._vary_s = rtt_s, rtt_s / 2
            return
        self._vary_s += (abs(rtt_s - self._smooth_s) - self._vary_s) / 4
        self._smooth_s += (rtt_s - self._smooth_s) / 8

    def lost(self) -> None:
        """Nothing came back in time: wait longer, should the path have become slow."""
        self._backoff = min(self._backoff + 1, _MAX_BACKOFF)

    def usual_s(self) -> float:
        """How long an answer takes at most as a rule, in seconds."""
        return 2 * self._guess_s if self._smooth_s is None else self._smooth_s + 4 * self._vary_s

    def timeout_s(self) -> float:
        """How long to wait for an answer, in seconds, before floors and ceilings."""
        return float(min(self.usual_s() * 2**self._backoff, _MAX_S))


def clamp(value: float, bounds: tuple[float, float]) -> float:
    """`value`, held between a floor and a ceiling."""
    return min(max(value, bounds[0]), bounds[1])
