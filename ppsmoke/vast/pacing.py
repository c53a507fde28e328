"""When the next call may start. Pure: the time comes in, and the caller does the waiting.

vast.ai limits each endpoint on its own, with a burst of one, counted over all programs of an account; the intervals are
its documented thresholds with a little room.
"""

from __future__ import annotations

from collections.abc import Mapping

from ppsmoke.vast.answers import Call

INTERVALS_S: Mapping[Call, float] = {
    Call.SEARCH: 6.0,
    Call.CREATE: 5.0,
    Call.SHOW: 2.0,
    Call.LIST: 2.0,
    Call.DESTROY: 3.0,
    Call.REQUEST_LOGS: 1.0,
    Call.ACCOUNT: 1.0,
}
PENALTIES_S: Mapping[Call, float] = {Call.CREATE: 12.0}
"""How long a call is shut out after it came too early, where that is known to be longer than its interval."""

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 30.0


class Pacer:
    """Times are seconds of any one clock. `scale` shrinks every interval alike."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._free_at: dict[Call, float] = {}

    def reserve(self, call: Call, now: float) -> float:
        """Book the next free start for this call: `now`, or later."""
        start = max(now, self._free_at.get(call, now))
        self._free_at[call] = start + INTERVALS_S[call] * self._scale
        return start

    def hold(self, call: Call, until: float) -> None:
        """No call of this kind starts before `until`."""
        self._free_at[call] = max(until, self._free_at.get(call, until))

    def backoff_s(self, call: Call, tries: int, *, limited: bool, asked_s: float | None) -> float:
        """How long to hold a call after its failure number `tries` (from 1); `asked_s` is what the service asked for.

        `limited`: it was refused for coming too often.
        """
        first = PENALTIES_S.get(call, INTERVALS_S[call]) if limited else _FIRST_BACKOFF_S
        grown = min(_LONGEST_BACKOFF_S, first * 2.0 ** min(tries - 1, 10))
        return max(grown, asked_s or 0.0) * self._scale
