"""What the user sees of the offers before anything is rented."""

from __future__ import annotations

import json

from ppsmoke.vast.plan_text import describe_offers, offers_json
from ppsmoke.vast.prices import Traffic, estimate
from tests.vast.kit import offer

OFFERS = [offer(id=7, dph_total=0.4, inet_down_cost=0.0), offer(id=8, dph_total=0.8, inet_down_cost=0.1)]
ESTIMATE = estimate(OFFERS, 0.25, [Traffic(1), Traffic(1)])


def test_a_table_shows_one_offer_a_stage_and_the_price_of_all() -> None:
    lines = describe_offers(OFFERS, ESTIMATE)
    assert lines[0].split()[:2] == ["stage", "machine"]
    assert [line.split()[:2] for line in lines[1:3]] == [[str(i), str(o.machine_id)] for i, o in enumerate(OFFERS)]
    assert lines[1].endswith("0.400")
    assert "1.200 USD/h; about 0.40 USD in 15 minutes, 0.10 of it traffic" in lines[-1]


def test_the_table_fits_into_80_columns() -> None:
    wide = [offer(gpu_name="RTX PRO 6000 WS", geolocation="British Columbia, CA", inet_down=9000.0, inet_up=9000.0)]
    assert max(map(len, describe_offers(wide, ESTIMATE))) <= 80


def test_an_offer_without_a_place_has_a_dash() -> None:
    places = [offer(geolocation=None), offer()]
    assert "  -  " in describe_offers(places, ESTIMATE)[1]


def test_the_same_as_an_object() -> None:
    shown = json.loads(json.dumps(offers_json(OFFERS, ESTIMATE)))
    assert [(row["stage"], row["id"], row["price_per_hour_usd"]) for row in shown["offers"]] == [
        (0, 7, 0.4),
        (1, 8, 0.8),
    ]
    assert round(shown["price"]["price_per_hour_usd"], 6) == 1.2
    assert shown["price"]["total_usd"] == ESTIMATE.total_usd
