"""How long a stage's steps took, summed up for its StageStopped."""

from __future__ import annotations

from ppsmoke.stats import percentile


class StepTimes:
    """Seconds per step, worker call and hand-over to the edge included."""

    def __init__(self) -> None:
        self._prefill: list[float] = []
        self._decode: list[float] = []

    def add(self, seconds: float, *, is_prefill: bool) -> None:
        (self._prefill if is_prefill else self._decode).append(seconds)

    def summary(self) -> dict[str, float]:
        """`prefill` in all; `decode_p50` and `decode_p99` of one step; what never ran is absent."""
        found: dict[str, float] = {}
        if self._prefill:
            found["prefill"] = sum(self._prefill)
        if self._decode:
            found["decode_p50"] = percentile(self._decode, 50)
            found["decode_p99"] = percentile(self._decode, 99)
        return found
