"""Goals: what counts as reached, and that what was not measured is said to be so."""

from __future__ import annotations

import pytest

from bench.goals import GOALS, Goal, Verdict, judge
from bench.samples import Case, Sample, Samples, Spread


def verdict_on(samples: Samples, what: str) -> Verdict:
    (found,) = [verdict for verdict in judge(samples) if what in verdict.goal.what]
    return found


@pytest.mark.parametrize(
    ("upward", "measured", "word"),
    [
        (True, 1.19, "missed"),
        (True, 1.2, "reached"),
        (True, 1.5, "aim reached"),
        (False, 1.6, "missed"),
        (False, 1.5, "reached"),
        (False, 1.2, "aim reached"),
    ],
)
def test_a_verdict(upward: bool, measured: float, word: str) -> None:
    least, aim = (1.2, 1.5) if upward else (1.5, 1.2)
    goal = Goal("something", "x", least, aim, upward, lambda _samples: None)
    assert Verdict(goal, Spread(measured, measured, measured, 1)).word == word


def test_nothing_measured_is_no_failure() -> None:
    assert {verdict.word for verdict in judge(Samples())} == {"not measured"}
    assert len(judge(Samples())) == len(GOALS) == 12


def test_decode_is_held_against_the_peer_at_its_best_thread_count() -> None:
    chain, one, two = Case("chain", "decode", 5), Case("llama-rpc", "decode", 5, 1), Case("llama-rpc", "decode", 5, 2)
    samples = Samples(
        Sample(0, case, {"decode_tok_s": rate}) for case, rate in ((chain, 150.0), (one, 100.0), (two, 20.0))
    )
    verdict = verdict_on(samples, "decode, N = 5, over RPC")
    assert verdict.measured == Spread(1.5, 1.5, 1.5, 1)
    assert verdict.word == "aim reached"


def test_what_five_stages_add_beside_their_hops() -> None:
    chain, alone = Case("chain", "decode", 5), Case("worker", "decode", 1)
    samples = Samples(
        [
            Sample(0, chain, {"decode_p50_ms": 8.0, "hop_ms": 0.5}),
            Sample(0, alone, {"decode_p50_ms": 5.0}),
        ]
    )
    measured = verdict_on(samples, "N = 5 minus N = 1").measured
    assert measured is not None
    assert measured.median == pytest.approx(0.5)


def test_a_late_position_is_held_against_an_early_one() -> None:
    late, early = Case("worker", "decode at 2000", 1, 1), Case("worker", "decode", 1, 1)
    samples = Samples([Sample(0, late, {"decode_p50_ms": 6.0}), Sample(0, early, {"decode_p50_ms": 4.0})])
    assert verdict_on(samples, "position 2,000").word == "reached"
