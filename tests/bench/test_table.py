"""The report as text: every case, every failure, and how noisy it was."""

from __future__ import annotations

from bench.goals import judge
from bench.samples import Case, Sample, Samples
from bench.table import describe

MACHINE = {"date": "2030-01-02T03:04:05Z", "cpu": "Some CPU", "cores_usable": 2, "packages": {"iroh": "1.2.0"}}
CHAIN = Case("chain", "decode", 2)


def text_of(*samples: Sample) -> str:
    found = Samples(samples)
    return describe(found, judge(found), MACHINE)


def test_rounds_are_shown_as_median_and_range() -> None:
    text = text_of(Sample(0, CHAIN, {"decode_tok_s": 100.0, "hop_ms": 0.25}), Sample(1, CHAIN, {"decode_tok_s": 120.0}))
    assert "chain decode N=2  110.0 (100.0..120.0)" in text
    assert "0.250" in text
    assert "Some CPU, 2 cores" in text
    assert "iroh 1.2.0" in text
    # Nobody measured these.
    assert "prefill tok/s" not in text
    assert "Memory" not in text


def test_a_failed_run_and_a_disturbed_one_are_named() -> None:
    text = text_of(
        Sample(0, CHAIN, {"decode_tok_s": 100.0}, foreign_cores=0.75),
        Sample(1, CHAIN, error="it ended with status 1", foreign_cores=0.01),
    )
    assert "failed: chain decode N=2, round 1: it ended with status 1" in text
    assert "disturbed: in 1 of 2 runs" in text
    assert "0.75 cores" in text


def test_goals_say_reached_missed_or_not_measured() -> None:
    text = text_of(Sample(0, Case("chain", "memory", 5), {"node_mb": 44.0, "worker_above_mb": 130.0}))
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert rows["node, memory"].endswith("aim reached")
    assert rows["worker, memory above weights and cache"].endswith("missed")
    assert rows["decode, N = 2, over RPC at its best"].endswith("not measured")
