from __future__ import annotations

from ppsmoke.vast.considered import MOST, considered_json
from ppsmoke.vast.offers import OfferWishes, choose_offers
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.stage_need import StageNeed
from tests.vast.kit import offer

NEEDS = [StageNeed(0, 8000, 16, Traffic(0.5)), StageNeed(1, 12000, 16, Traffic(0.5))]


def test_every_offer_says_why_it_was_taken_or_left() -> None:
    market = [
        offer(id=1, machine_id=1, host_id=1, dph_total=0.1),
        offer(id=2, machine_id=2, host_id=2, dph_total=0.2),
        offer(id=3, machine_id=2, host_id=2, dph_total=0.3),
        offer(id=4, machine_id=4, host_id=4, dph_total=0.9),
        offer(id=5, machine_id=5, host_id=5, dph_total=0.01, gpu_ram=4000, reliability2=0.1),
        offer(id=6, machine_id=6, host_id=6, dph_total=0.01),
    ]
    bad = frozenset({6})
    wishes = OfferWishes()
    chosen = choose_offers(market, NEEDS, wishes, bad_machines=bad)
    assert chosen is not None
    rows = {row["offer"]: row for row in considered_json(market, chosen, NEEDS, wishes, bad)}
    assert {rows[1]["stage"], rows[2]["stage"]} == {0, 1}
    assert "left_out" not in rows[1]
    assert rows[3]["left_out"] == ["its machine is taken by another stage"]
    assert rows[4]["left_out"] == ["others were the better choice"]
    assert [reason.split(":")[0] for reason in rows[5]["left_out"]] == ["GPU memory", "reliability"]
    assert "8.0 GB" in rows[5]["left_out"][0]
    assert rows[6]["left_out"] == ["known bad machine: wanted no"]


def test_the_chosen_are_there_however_many_there_are() -> None:
    cheap = [offer(id=n, machine_id=n, host_id=n, dph_total=0.001, gpu_ram=1000) for n in range(1, MOST + 50)]
    dear = [offer(id=9000 + n, machine_id=9000 + n, host_id=9000 + n, dph_total=5.0) for n in range(2)]
    rows = considered_json([*cheap, *dear], dear, NEEDS, OfferWishes())
    assert len(rows) == MOST
    assert [row["stage"] for row in rows[:2]] == [0, 1]
