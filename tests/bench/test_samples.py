"""Statistics over rounds: medians, pairs, and what is left out of them."""

from __future__ import annotations

import pytest

from bench.samples import Case, Sample, Samples, Spread, spread

OURS, THEIRS = Case("chain", "decode", 2), Case("llama-rpc", "decode", 2, 1)


def samples(*values: tuple[int, Case, float | None]) -> Samples:
    """(round, case, tok/s); None is a run that failed."""
    return Samples(
        Sample(number, case, {"tok_s": value}) if value is not None else Sample(number, case, error="it died")
        for number, case, value in values
    )


def test_the_spread_of_some_values() -> None:
    assert spread([3.0, 1.0, 2.0, 9.0]) == Spread(2.5, 1.0, 9.0, 4)
    assert spread([]) is None


def test_a_failed_run_is_named_and_in_no_statistic() -> None:
    found = samples((0, OURS, 10.0), (1, OURS, None), (2, OURS, 30.0))
    assert found.spread(OURS, "tok_s") == Spread(20.0, 10.0, 30.0, 2)
    assert [(sample.round, sample.error) for sample in found.failed] == [(1, "it died")]


def test_ratios_are_taken_pair_by_pair() -> None:
    """The machine was three times slower in round 1; the ratio is not."""
    found = samples((0, OURS, 30.0), (0, THEIRS, 20.0), (1, OURS, 10.0), (1, THEIRS, 5.0), (2, OURS, 99.0))
    assert found.ratio(OURS, THEIRS, "tok_s") == Spread(1.75, 1.5, 2.0, 2)
    assert found.difference(OURS, THEIRS, "tok_s") == Spread(7.5, 5.0, 10.0, 2)
    assert found.ratio(OURS, Case("llama", "decode", 0, 1), "tok_s") is None


def test_the_best_of_a_peer_is_that_of_the_greatest_median() -> None:
    lucky, steady = THEIRS, Case("llama-rpc", "decode", 2, 2)
    found = samples((0, lucky, 9.0), (1, lucky, 1.0), (2, lucky, 1.0), (0, steady, 5.0), (1, steady, 5.0))
    assert found.best("tok_s", "llama-rpc", "decode", 2) == steady
    assert found.best("tok_s", "llama-rpc", "decode", 5) is None


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (Case("worker", "decode", 1, 1), "worker decode N=1 1 thread"),
        (Case("llama", "decode", 0, 2), "llama decode 2 threads"),
        (Case("llama-rpc", "prefill 512", 2, 1, "micro-batch 64"), "llama-rpc prefill 512 N=2 1 thread micro-batch 64"),
    ],
)
def test_a_case_in_words(case: Case, text: str) -> None:
    assert str(case) == text
