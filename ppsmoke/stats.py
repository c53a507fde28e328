"""Order statistics."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], rank: float) -> float:
    """The nearest-rank percentile, 0 < rank <= 100, of a non-empty sequence."""
    ordered = sorted(values)
    index = max(0, -(-len(ordered) * rank // 100) - 1)
    return ordered[int(index)]
