"""Prices: of an hour, of a run, of what was used."""

from __future__ import annotations

import pytest

from ppsmoke.vast.prices import Traffic, estimate, price_per_hour_usd, run_cost_usd, spent_usd, usd
from ppsmoke.vast.records import parse_instance
from tests.vast.kit import NOW, offer


def test_a_run_costs_its_time_and_its_traffic() -> None:
    machine = offer(dph_total=0.4, inet_down_cost=0.02, inet_up_cost=0.03)
    assert run_cost_usd(machine, 0.25, Traffic(down_gb=5, up_gb=1)) == pytest.approx(0.1 + 0.1 + 0.03)


def test_the_estimate_adds_all_machines() -> None:
    machines = [offer(dph_total=0.3, inet_down_cost=0.0), offer(dph_total=0.5, inet_down_cost=0.01)]
    found = estimate(machines, 0.5, [Traffic(2), Traffic(4)])
    assert price_per_hour_usd(machines) == found.price_per_hour_usd == pytest.approx(0.8)
    assert found.traffic_usd == pytest.approx(0.04)
    assert found.total_usd == pytest.approx(0.44)


def test_an_estimate_needs_the_traffic_of_every_machine() -> None:
    with pytest.raises(ValueError):
        estimate([offer(), offer()], 1, [Traffic(1)])


def test_what_an_instance_has_cost_grows_with_its_age() -> None:
    row = {"id": 1, "dph_total": 0.36, "start_date": NOW - 1000}
    assert spent_usd(parse_instance(row), NOW) == pytest.approx(0.1)
    assert spent_usd(parse_instance({**row, "dph_total": None}), NOW) is None
    assert spent_usd(parse_instance({**row, "start_date": None}), NOW) is None


@pytest.mark.parametrize(
    ("amount", "shown"), [(0.0, "0.00"), (0.001, "0.001"), (0.00234, "0.0023"), (0.014, "0.01"), (25.0, "25.00")]
)
def test_a_small_amount_is_not_shown_as_nothing(amount: float, shown: str) -> None:
    assert usd(amount) == shown
