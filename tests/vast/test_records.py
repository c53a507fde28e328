"""Rows of the service's answers: what is taken out of them, and what odd ones become."""

from __future__ import annotations

from typing import Any

import pytest

from ppsmoke.vast.records import BadRow, CreateRequest, country_of, parse_instance, parse_offer, rows_of
from tests.vast.kit import NOW, offer, sample_body


def test_an_offer_has_the_rows_figures() -> None:
    found = offer()
    assert (found.id, found.machine_id, found.host_id) == (31224551, 52077, 80114)
    assert (found.gpu_name, found.num_gpus, found.gpu_ram_mb, found.compute_cap) == ("RTX 4090", 1, 24564, 890)
    assert (found.price_per_hour_usd, found.down_usd_per_gb) == (0.3089, 0.002)
    assert (found.cuda, found.driver, found.reliability) == (12.8, "570.133.20", 0.9973)
    assert (found.inet_down_mbps, found.inet_up_mbps, found.disk_gb) == (902.7, 611.3, 612.4)
    assert (found.country, found.location, found.verified, found.datacenter) == ("CA", "Quebec, CA", True, False)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"reliability2": None, "reliability": 0.9}, "reliability", 0.0),
        ({"cuda_max_good": "12.4"}, "cuda", 12.4),
        ({"cuda_max_good": None}, "cuda", None),
        ({"compute_cap": None}, "compute_cap", None),
        ({"geolocation": None}, "country", ""),
        ({"geolocation": ", US"}, "country", "US"),
        ({"host_id": None}, "host_id", None),
        ({"num_gpus": None}, "num_gpus", 0),
        ({"inet_down": float("inf")}, "inet_down_mbps", 0.0),
        ({"verification": "deverified"}, "verified", False),
        ({"rentable": False}, "rentable", False),
        ({"duration": None}, "seconds_left", None),
    ],
)
def test_a_missing_figure_never_makes_an_offer_better(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(offer(**changes), field) == value


def test_the_newer_name_of_the_reliability_is_not_needed() -> None:
    row = sample_body("search_offers_single_object")["offers"]
    del row["reliability2"]
    assert parse_offer(row).reliability == 0.9973


@pytest.mark.parametrize("gap", ["id", "machine_id", "dph_total"])
def test_an_offer_that_cannot_be_rented_or_priced_is_a_bad_row(gap: str) -> None:
    for value in (None, "x", True, -1, [1]):
        with pytest.raises(BadRow):
            offer(**{gap: value})


def test_an_instance_needs_its_id_alone() -> None:
    found = parse_instance({"id": 7})
    assert (found.id, found.label, found.actual_status, found.price_per_hour_usd) == (7, "", None, None)
    assert found.age_s(NOW) is None
    for row in ({}, {"id": None}, {"id": "x"}, {"id": 0}, {"id": True}, {"id": 1.5}):
        with pytest.raises(BadRow):
            parse_instance(row)


def test_an_instance_knows_its_age() -> None:
    rows = {row["id"]: parse_instance(row) for row in sample_body("instances_v1_list")["instances"]}
    assert rows[41600990].age_s(NOW) == pytest.approx(180_000)
    assert rows[41873205].age_s(NOW) == pytest.approx(588.48)
    assert rows[41873205].age_s(0) == 0


def test_blanks_around_an_address_go() -> None:
    assert parse_instance({"id": 7, "public_ipaddr": " 203.0.113.20 \n"}).public_ip == "203.0.113.20"


@pytest.mark.parametrize(
    ("value", "count"), [([{}, {}], 2), ({}, 1), ([], 0), (None, None), ("x", None), ([{}, 1], None)]
)
def test_rows_are_a_list_or_one_row(value: object, count: int | None) -> None:
    rows = rows_of(value)
    assert (None if rows is None else len(rows)) == count


@pytest.mark.parametrize(
    ("location", "country"), [("Quebec, CA", "CA"), (", US", "US"), ("us", "US"), ("Mars", ""), ("", ""), ("A, 12", "")]
)
def test_a_country_is_the_two_letters_at_the_end(location: str, country: str) -> None:
    assert country_of(location) == country


def request(**changes: Any) -> CreateRequest:
    return CreateRequest(**{"label": "l", "image": "i", "disk_gb": 10, "script": "s", "env": {}, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"label": ""}, "label"),
        ({"label": "x" * 61}, "label"),
        ({"script": "x" * 4000}, "start script"),
        ({"env": {"A": "x" * 32768}}, "environment"),
    ],
)
def test_what_the_service_would_cut_or_refuse_is_refused_here(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        request(**changes)


def test_a_script_is_the_argument_of_a_shell_and_not_the_program() -> None:
    body = request(script="echo a b").body()
    assert (body["runtype"], body["onstart"], body["args"]) == ("args", "bash", ["-c", "echo a b"])


def test_an_instance_that_cannot_start_now_is_not_kept_waiting_at_the_users_cost() -> None:
    body = request().body()
    assert (body["cancel_unavail"], body["target_state"]) == (True, "running")
    assert "price" not in body, "a price would make it an interruptible rental"
