"""What links allow, and the table of what was measured beside it."""

from __future__ import annotations

import pytest

from bench.wan_figures import DIRECT, RELAYED, WanCase, WanResult, limits, wan_table


def test_a_token_takes_half_a_round_trip_a_stage_and_what_the_stages_compute() -> None:
    case = WanCase(stages=5, round_trip_s=0.1, way=DIRECT)
    least = limits(case, step_s=0.008, prefill_s=0.0, activation_bytes=0, rate_bit_s=1e8)
    assert least.token_s == pytest.approx(0.258)
    # Into the chain, through it, and out of it: one way more than around it.
    assert least.first_token_s == pytest.approx(0.3)


def test_the_prompt_crosses_every_link_between_stages_part_behind_part() -> None:
    megabit = 125_000

    def transfer_s(stages: int, parts: int) -> float:
        case = WanCase(stages, 0.0, DIRECT)
        least = limits(case, step_s=0, prefill_s=0, activation_bytes=megabit, rate_bit_s=1e6, parts=parts)
        return least.first_token_s

    assert transfer_s(2, 1) == pytest.approx(1.0)
    assert transfer_s(5, 1) == pytest.approx(4.0)
    assert transfer_s(5, 10) == pytest.approx(1.3)


def test_the_table_shows_measured_over_least_and_names_what_failed() -> None:
    case = WanCase(2, 0.1, RELAYED)
    least = limits(case, step_s=0.0, prefill_s=0.0, activation_bytes=0, rate_bit_s=1e8)
    lines = wan_table([WanResult(case, 0.11, 0.3, 4.0, least), WanResult(case, error="it did not end within 300 s")])
    assert lines[1].split() == [
        "2",
        "100",
        "ms",
        "relayed",
        "9.1",
        "110.0",
        "100.0",
        "1.10",
        "0.30",
        "s",
        "0.15",
        "2.00",
        "4.0",
        "s",
    ]
    assert "not measured: it did not end within 300 s" in lines[2]
