"""Rate limits as the service has them: a call that comes too early is refused, in one of four forms."""

from __future__ import annotations

from dataclasses import dataclass, field

THRESHOLDS_S = {"search": 6.0, "create": 4.5, "show": 2.0, "list": 1.0, "destroy": 3.0, "change": 1.0, "logs": 1.0}
_PENALTY_S = {"create": 12.0}


@dataclass(slots=True)
class RateLimits:
    """One for each call and identity; `factor` 0 turns them off."""

    factor: float = 1.0
    _free_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def refuse_s(self, call: str, identity: str, now: float) -> float | None:
        """Seconds of the call's threshold when it comes too early, None when it may pass."""
        threshold = THRESHOLDS_S.get(call, 0.0) * self.factor
        free_at = self._free_at.get((call, identity), 0.0)
        if now < free_at:
            penalty = _PENALTY_S.get(call, 0.0) * self.factor
            self._free_at[call, identity] = max(free_at, now + penalty)
            return threshold
        self._free_at[call, identity] = now + threshold
        return None
