"""The time between doubt and death, and what shortens it.

Lifeguard (arXiv 1707.00788, section IV-B): it starts long and shrinks towards its least with the logarithm of the
number of independent confirmations.
"""

from __future__ import annotations

import math

_PATIENCE = 4


class Suspicion:
    """Of one member at one incarnation.

    accuser: the node id of the first who doubted. needed: confirmations for the least time to apply; with 0 needed,
    because there is nobody who could confirm, the most applies: a lone witness has the weakest evidence.
    """

    __slots__ = ("_accusers", "_least_s", "_most_s", "_needed", "started")

    def __init__(self, accuser: str, now: float, *, needed: int, least_s: float, most_s: float) -> None:
        self.started = now
        self._accusers = {accuser}
        self._needed = needed
        self._least_s = least_s
        self._most_s = most_s

    def confirm(self, accuser: str) -> bool:
        """Another doubts too. False when that is no news: known already, or enough have confirmed."""
        if accuser in self._accusers or len(self._accusers) > self._needed:
            return False
        self._accusers.add(accuser)
        return True

    @property
    def ends(self) -> float:
        """When the suspect is dead unless it contradicts."""
        return self.started + suspicion_s(len(self._accusers) - 1, self._needed, self._least_s, self._most_s)

    def ends_for(self, heard_at: float) -> float:
        """When we may say so ourselves. One that we have heard from since we doubt it is silent for us only from then
        on: it gets the least time anew, to contradict what it is told meanwhile. But one that speaks and never
        contradicts does not hear us, and `_PATIENCE` times the most is all it gets."""
        if heard_at <= self.started:
            return self.ends
        return max(self.ends, min(heard_at + self._least_s, self.started + _PATIENCE * self._most_s))

    def shift(self, delay_s: float) -> None:
        """We were not there for so long; the suspect's time starts later."""
        self.started += delay_s


def suspicion_s(confirmed: int, needed: int, least_s: float, most_s: float) -> float:
    """Lifeguard's formula: most - (most - least) * log(confirmed + 1) / log(needed + 1), not under the least."""
    if needed <= 0:
        return most_s
    share = math.log(confirmed + 1) / math.log(needed + 1)
    return max(least_s, most_s - (most_s - least_s) * share)


def confirmations_needed(wanted: int, members: int) -> int:
    """Of `members` (oneself and the suspect included) only the others can confirm: `wanted`, or all of them."""
    return max(0, min(wanted, members - 2))


def size_factor(members: int) -> float:
    """News takes longer to get around in a larger cluster: log10 of its size, at least 1 (SWIM, section 4.2)."""
    return max(1.0, math.log10(max(members, 1)))
