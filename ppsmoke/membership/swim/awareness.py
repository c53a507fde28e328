"""Local health: how much a member trusts its own judgement at the moment.

Lifeguard (arXiv 1707.00788, section IV-A): what goes wrong in a way that may be one's own fault raises a score, what
goes well lowers it, and a member with score s waits (s + 1) times as long before it holds silence against another.
"""

from __future__ import annotations


class Awareness:
    """The score starts at 0, healthy, and stays between 0 and `limit`."""

    __slots__ = ("_limit", "score")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    def change(self, delta: int) -> None:
        self.score = min(max(self.score + delta, 0), self._limit)

    def scale(self, wait_s: float) -> float:
        """A wait, prolonged as the score asks."""
        return wait_s * (self.score + 1)


def probe_failed_delta(asked: int, refused: int) -> int:
    """How a failed probe changes the score. `asked` helpers were to probe too; `refused` said that they had no answer
    either, which clears us. A helper that says nothing at all hints at our own connection; so does having none."""
    return asked - refused if asked else 1
