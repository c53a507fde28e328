"""What the figures should reach, as ratios within one run on one machine, and whether they do. Pure.

A goal that is missed is a line that says so; nothing fails for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.samples import Case, Samples, Spread

DECODE, PREFILL, MEMORY = "decode", "prefill 512", "memory"
LATE, EARLY = "decode at 2000", "decode"
FIRST_WARM, FIRST_COLD = "first text warm", "first text cold"


@dataclass(frozen=True, slots=True)
class Goal:
    """`least` is to be reached, `aim` is hoped for. `upward`: more is better. `measure` gives None of what was not
    measured."""

    what: str
    unit: str
    least: float
    aim: float
    upward: bool
    measure: Callable[[Samples], Spread | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    measured: Spread | None

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        if self._holds(self.goal.aim):
            return "aim reached"
        return "reached" if self._holds(self.goal.least) else "missed"

    def _holds(self, bound: float) -> bool:
        assert self.measured is not None
        return self.measured.median >= bound if self.goal.upward else self.measured.median <= bound

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.goal.what,
            "unit": self.goal.unit,
            "least": self.goal.least,
            "aim": self.goal.aim,
            "measured": None if self.measured is None else self.measured.as_json(),
            "verdict": self.word,
        }


def judge(samples: Samples) -> list[Verdict]:
    return [Verdict(goal, goal.measure(samples)) for goal in GOALS]


def _decode_alone_one_thread(samples: Samples) -> Spread | None:
    return samples.ratio(Case("worker", DECODE, 1, 1), Case("llama", DECODE, 0, 1), "decode_tok_s")


def _decode_alone_two_threads(samples: Samples) -> Spread | None:
    return _against_best(samples, Case("worker", DECODE, 1, 2), "llama", DECODE, 0, "decode_tok_s")


def _decode_chain(stages: int) -> Callable[[Samples], Spread | None]:
    def measure(samples: Samples) -> Spread | None:
        return _against_best(samples, Case("chain", DECODE, stages), "llama-rpc", DECODE, stages, "decode_tok_s")

    return measure


def _prefill_chain(samples: Samples) -> Spread | None:
    return _against_best(samples, Case("chain", PREFILL, 2), "llama-rpc", PREFILL, 2, "prefill_tok_s")


def _against_best(samples: Samples, case: Case, who: str, what: str, stages: int, figure: str) -> Spread | None:
    """Against the peer's best configuration of all that were tried."""
    best = samples.best(figure, who, what, stages)
    return None if best is None else samples.ratio(case, best, figure)


def _cost_of_five(samples: Samples) -> Spread | None:
    """What five stages add to a token beside their five hops, ms, both with as many threads as they choose."""
    added = samples.difference(Case("chain", DECODE, 5), Case("worker", DECODE, 1), "decode_p50_ms")
    hop = samples.spread(Case("chain", DECODE, 5), "hop_ms")
    if added is None or hop is None:
        return None
    hops = 5 * hop.median
    return Spread(added.median - hops, added.low - hops, added.high - hops, added.count)


def _hop(samples: Samples) -> Spread | None:
    return samples.spread(Case("chain", DECODE, 5), "hop_ms")


def _first_text(what: str) -> Callable[[Samples], Spread | None]:
    return lambda samples: samples.spread(Case("chain", what, 5), "first_text_s")


def _memory(figure: str) -> Callable[[Samples], Spread | None]:
    return lambda samples: samples.spread(Case("chain", MEMORY, 5), figure)


def _late_over_early(samples: Samples) -> Spread | None:
    late, early = Case("worker", LATE, 1, 1), Case("worker", EARLY, 1, 1)
    return samples.ratio(late, early, "decode_p50_ms")


GOALS = (
    Goal("decode, worker alone, 1 thread, over llama.cpp's 1 thread", "x", 1.2, 1.5, True, _decode_alone_one_thread),
    Goal("decode, worker alone, 2 threads, over llama.cpp's best", "x", 1.2, 1.6, True, _decode_alone_two_threads),
    Goal("decode, N = 2, over RPC at its best", "x", 1.2, 1.5, True, _decode_chain(2)),
    Goal("decode, N = 5, over RPC at its best", "x", 1.2, 1.5, True, _decode_chain(5)),
    Goal("decode, N = 5 minus N = 1, beside 5 hops", "ms/token", 1.5, 0.5, False, _cost_of_five),
    Goal("prefill 512, N = 2, over RPC's best", "x", 2.0, 4.0, True, _prefill_chain),
    Goal("hop, all but compute, while decoding, N = 5", "ms", 0.35, 0.2, False, _hop),
    Goal("command to first text, N = 5, warm cache", "s", 4.0, 2.0, False, _first_text(FIRST_WARM)),
    Goal("command to first text, N = 5, cold cache", "s", 8.0, 3.0, False, _first_text(FIRST_COLD)),
    Goal("worker, memory above weights and cache", "MB", 120.0, 90.0, False, _memory("worker_above_mb")),
    Goal("node, memory", "MB", 60.0, 45.0, False, _memory("node_mb")),
    Goal("ms/token at position 2,000 over position 8", "x", 1.6, 1.3, False, _late_over_early),
)
