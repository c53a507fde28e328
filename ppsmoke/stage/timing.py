"""How long a stage's steps took and what they consisted of, summed up for its StageStopped. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ppsmoke.stats import percentile

MOST_STEPS = 20_000
"""What is said of decode steps is of so many, the newest."""


class StepParts(NamedTuple):
    """Seconds of one step of a stage, in the order in which they pass.

    `inward`: from the object's arrival in the node to the beginning of the engine's work in the worker;
    `compute`: the engine's work; `outward`: from its end to the reply in the node; `write`: until the transport had
    taken the first output. The way to the next stage is not a stage's to see.
    """

    inward: float
    compute: float
    outward: float
    write: float

    @property
    def total(self) -> float:
        return self.inward + self.compute + self.outward + self.write


class StepTimes:
    """Parts of the newest steps: a chain may be held for days."""

    def __init__(self) -> None:
        self._prefill: float | None = None
        self._decode: deque[StepParts] = deque(maxlen=MOST_STEPS)
        self._rounds: deque[float] = deque(maxlen=MOST_STEPS)
        self._arrived: float | None = None

    def add(self, parts: StepParts, arrived: float, *, is_prefill: bool) -> None:
        """`arrived`: when the step's object came, on the clock of the parts."""
        if is_prefill:
            self._prefill = (self._prefill or 0.0) + parts.total
            self._arrived = None
            return
        self._decode.append(parts)
        if self._arrived is not None:
            self._rounds.append(arrived - self._arrived)
        self._arrived = arrived

    def summary(self) -> dict[str, float]:
        """`prefill` in all; `decode_p50` and `decode_p99` of one step; the medians of its parts, `decode_inward_p50`
        and so on, and of a token's way round the chain, `decode_round_p50`; what never ran is absent."""
        found: dict[str, float] = {}
        if self._prefill is not None:
            found["prefill"] = self._prefill
        if self._decode:
            totals = [parts.total for parts in self._decode]
            found["decode_p50"] = percentile(totals, 50)
            found["decode_p99"] = percentile(totals, 99)
            for name, values in self._columns():
                found[f"decode_{name}_p50"] = percentile(values, 50)
        if self._rounds:
            found["decode_round_p50"] = percentile(self._rounds, 50)
        return found

    def _columns(self) -> Iterator[tuple[str, list[float]]]:
        yield "inward", [parts.inward for parts in self._decode]
        yield "compute", [parts.compute for parts in self._decode]
        yield "outward", [parts.outward for parts in self._decode]
        yield "write", [parts.write for parts in self._decode]
