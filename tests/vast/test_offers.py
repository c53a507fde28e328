"""Choosing offers: every filter here and in the query, the spread over machines and hosts, the order, the table."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from ppsmoke.vast.offers import (
    OfferWishes,
    Strategy,
    Taken,
    checks,
    choose_offers,
    filter_table,
    find_offer,
    merged,
    search_query,
    too_few_offers,
)
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.records import Offer, parse_offer
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.wording import describe_error
from tests.vast.kit import offer, sample_body

SMALL = Traffic(0.5)
NEED = StageNeed(stage=0, vram_mb=8000, disk_gb=16, traffic=SMALL)
STRICT = OfferWishes(min_cuda=12.8, min_inet_down_mbps=200, min_reliability=0.95)


def needs(count: int, vram_mb: float = 8000) -> list[StageNeed]:
    return [StageNeed(stage, vram_mb, 16, SMALL) for stage in range(count)]


def machine(number: int, price: float, **changes: Any) -> Offer:
    """An offer of its own on a machine and a host of its own."""
    return offer(**{"id": number, "machine_id": 1000 + number, "host_id": 2000 + number, "dph_total": price} | changes)


def market() -> list[Offer]:
    return [parse_offer(row) for row in sample_body("search_offers_6")["offers"]]


def test_of_the_sample_market_exactly_two_survive_strict_wishes_one_to_a_machine() -> None:
    chosen = choose_offers(market(), needs(2), STRICT)
    assert chosen is not None
    assert [o.id for o in chosen] == [31224551, 31190338]
    assert choose_offers(market(), needs(3), STRICT) is None


# (a wish, a row that does not meet it, one that just does)
FILTERS: list[tuple[str, OfferWishes, dict[str, Any], dict[str, Any]]] = [
    ("GPU", OfferWishes(gpu_names=("RTX_4090", "L40S")), {"gpu_name": "RTX 4080"}, {"gpu_name": "l40s"}),
    ("GPU memory", OfferWishes(), {"gpu_ram": 7999}, {"gpu_ram": 8000}),
    ("GPU memory", OfferWishes(), {"gpu_ram": None}, {"gpu_ram": 8000}),
    ("number of GPUs", OfferWishes(), {"num_gpus": 2}, {"num_gpus": 1}),
    ("CUDA", OfferWishes(min_cuda=12.6), {"cuda_max_good": 12.4}, {"cuda_max_good": 12.6}),
    ("CUDA", OfferWishes(min_cuda=12.6), {"cuda_max_good": None}, {"cuda_max_good": "12.8"}),
    ("driver", OfferWishes(min_driver="550.144"), {"driver_version": "550.90.12"}, {"driver_version": "550.144.03"}),
    ("driver", OfferWishes(min_driver="550"), {"driver_version": None}, {"driver_version": "1000.1"}),
    ("compute capability", OfferWishes(min_compute_cap=800), {"compute_cap": 750}, {"compute_cap": 800}),
    ("disk", OfferWishes(), {"disk_space": 15.9}, {"disk_space": 16.0}),
    ("download", OfferWishes(min_inet_down_mbps=300), {"inet_down": 299}, {"inet_down": 300}),
    ("upload", OfferWishes(min_inet_up_mbps=100), {"inet_up": 99}, {"inet_up": 100}),
    ("reliability", OfferWishes(min_reliability=0.98), {"reliability2": 0.979}, {"reliability2": 0.98}),
    ("price per hour", OfferWishes(max_price_per_hour_usd=0.3), {"dph_total": 0.31}, {"dph_total": 0.3}),
    ("country", OfferWishes(countries=("ca", "US")), {"geolocation": "Paris, FR"}, {"geolocation": ", US"}),
    ("country", OfferWishes(countries=("CA",)), {"geolocation": None}, {"geolocation": "Quebec, CA"}),
    ("country", OfferWishes(not_countries=("cn",)), {"geolocation": "Sichuan, CN"}, {"geolocation": ""}),
    ("verified host", OfferWishes(), {"verification": "unverified"}, {"verification": "verified"}),
    ("datacenter", OfferWishes(datacenter=True), {"hosting_type": 0}, {"hosting_type": 1}),
    ("offer lasts", OfferWishes(min_seconds_left=3600), {"duration": 3599}, {"duration": 3600}),
    ("to be had now", OfferWishes(), {"rentable": False}, {"rentable": True}),
    ("to be had now", OfferWishes(), {"rented": True}, {"rented": False}),
]


@pytest.mark.parametrize(("name", "wishes", "outside", "inside"), FILTERS, ids=[f"{f[0]} {f[2]}" for f in FILTERS])
def test_each_wish_is_checked_here_whatever_the_service_filtered(
    name: str, wishes: OfferWishes, outside: dict[str, Any], inside: dict[str, Any]
) -> None:
    assert find_offer([offer(**outside)], NEED, wishes) is None
    assert find_offer([offer(**inside)], NEED, wishes) is not None
    failing = [check.name for check in checks(wishes, NEED) if not check.passes(offer(**outside))]
    assert failing == [name]


def test_every_check_is_in_the_table_of_this_test() -> None:
    everything = OfferWishes(
        gpu_names=("x",),
        min_driver="1",
        max_price_per_hour_usd=1,
        countries=("CA",),
        not_countries=("CN",),
        datacenter=True,
    )
    names = {check.name for check in checks(everything, NEED, frozenset({1}))}
    assert names == {row[0] for row in FILTERS} | {"known bad machine"}


def test_the_query_asks_for_what_the_smallest_stage_needs_and_prices_the_largest_disk() -> None:
    wishes = OfferWishes(
        gpu_names=("RTX_4090",),
        max_price_per_hour_usd=0.5,
        countries=("us",),
        not_countries=("cn",),
        datacenter=True,
    )
    small, large = StageNeed(0, 6000, 12, SMALL), StageNeed(1, 9000, 20, SMALL)
    assert search_query(wishes, [small, large], bad_machines={9, 3}, price_from_usd=0.2) == {
        "num_gpus": {"eq": 1},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "type": "on-demand",
        "order": [["dph_total", "asc"]],
        "limit": 64,
        "allocated_storage": 20,
        "gpu_ram": {"gte": 6000},
        "disk_space": {"gte": 12},
        "reliability": {"gte": 0.95},
        "inet_down": {"gte": 200.0},
        "inet_up": {"gte": 50.0},
        "compute_cap": {"gte": 700},
        "duration": {"gte": 7200.0},
        "gpu_name": {"in": ["RTX 4090"]},
        "cuda_max_good": {"gte": 12.0},
        "verified": {"eq": True},
        "datacenter": {"eq": True},
        "dph_total": {"gte": 0.2, "lte": 0.5},
        "geolocation": {"in": ["US"], "notin": ["CN"]},
        "machine_id": {"notin": [3, 9]},
    }


def test_a_wish_that_was_not_made_is_not_in_the_query() -> None:
    query = search_query(OfferWishes(min_cuda=None, verified=False), [NEED])
    absent = {"gpu_name", "cuda_max_good", "verified", "datacenter", "dph_total", "geolocation", "machine_id"}
    assert absent.isdisjoint(query)


def test_no_offer_and_no_machine_is_taken_twice() -> None:
    twins = [machine(1, 0.1), machine(2, 0.2, machine_id=1001), machine(3, 0.3)]
    chosen = choose_offers(twins, needs(2), OfferWishes())
    assert chosen is not None
    assert [o.id for o in chosen] == [1, 3]
    assert choose_offers(twins, needs(3), OfferWishes()) is None


def test_one_host_has_at_most_two_of_the_stages() -> None:
    one_host = [machine(number, number / 10, host_id=5) for number in (1, 2, 3)]
    chosen = choose_offers([*one_host, machine(9, 0.9)], needs(3), OfferWishes())
    assert chosen is not None
    assert [o.id for o in chosen] == [1, 2, 9]


def test_hosts_without_a_name_are_not_one_host() -> None:
    nameless = [machine(number, 0.1, host_id=None) for number in (1, 2, 3)]
    assert choose_offers(nameless, needs(3), OfferWishes()) is not None


def test_a_replacement_leaves_out_what_was_tried() -> None:
    tried = Taken().and_also(machine(1, 0.1))
    found = find_offer([machine(1, 0.1), machine(2, 0.2)], NEED, OfferWishes(), taken=tried)
    assert found is not None
    assert found.id == 2


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        (Taken(), True),
        (Taken(offers=frozenset({1})), False),
        (Taken(machines=frozenset({1001})), False),
        (Taken(hosts=(2001,)), True),
        (Taken(hosts=(2001, 5, 2001)), False),
        (Taken(offers=frozenset({2}), machines=frozenset({1002}), hosts=(2002, 2002)), True),
    ],
)
def test_an_offer_is_free_beside_what_is_taken(taken: Taken, free: bool) -> None:
    assert taken.is_free(machine(1, 0.1)) is free
    assert (find_offer([machine(1, 0.1)], NEED, OfferWishes(), taken=taken) is not None) is free


def test_known_bad_machines_are_left_out() -> None:
    offers = [machine(1, 0.1), machine(2, 0.2)]
    found = find_offer(offers, NEED, OfferWishes(), bad_machines=frozenset({1001}))
    assert found is not None
    assert found.id == 2


def test_the_cheapest_is_cheapest_with_its_traffic() -> None:
    cheap_hours, cheap_traffic = machine(1, 0.20, inet_down_cost=0.04), machine(2, 0.30, inet_down_cost=0.0)
    heavy = StageNeed(0, 8000, 16, Traffic(down_gb=8))
    for need, best in ((heavy, 2), (NEED, 1)):
        found = find_offer([cheap_hours, cheap_traffic], need, OfferWishes())
        assert found is not None
        assert found.id == best


def test_the_more_reliable_wins_between_equals() -> None:
    found = find_offer([machine(1, 0.2, reliability2=0.96), machine(2, 0.2)], NEED, OfferWishes())
    assert found is not None
    assert found.id == 2


def test_median_takes_the_middle_prices() -> None:
    offers = [machine(number, number / 10) for number in range(1, 10)]
    chosen = choose_offers(offers, needs(3), OfferWishes(), strategy=Strategy.MEDIAN)
    assert chosen is not None
    assert sorted(o.id for o in chosen) == [4, 5, 6]
    cheapest = choose_offers(offers, needs(3), OfferWishes())
    assert cheapest is not None
    assert sorted(o.id for o in cheapest) == [1, 2, 3]


def test_the_stage_that_needs_most_memory_chooses_first() -> None:
    offers = [machine(1, 0.1, gpu_ram=24000), machine(2, 0.2, gpu_ram=12000)]
    chosen = choose_offers(offers, [StageNeed(0, 8000, 16, SMALL), StageNeed(1, 20000, 16, SMALL)], OfferWishes())
    assert chosen is not None
    assert [o.id for o in chosen] == [2, 1], "in stage order"


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_market_the_choice_keeps_its_rules(seed: int) -> None:
    draw = random.Random(seed)
    offers = [
        offer(
            id=number,
            machine_id=draw.randrange(1, 12),
            host_id=draw.randrange(1, 6),
            dph_total=draw.uniform(0.1, 1),
            gpu_ram=draw.choice([8000, 12000, 24000]),
            reliability2=draw.choice([0.9, 0.99]),
        )
        for number in range(1, draw.randrange(2, 40))
    ]
    wanted = [StageNeed(stage, draw.choice([6000, 10000, 20000]), 16, SMALL) for stage in range(draw.randrange(2, 6))]
    chosen = choose_offers(offers, wanted, OfferWishes(), strategy=draw.choice(list(Strategy)))
    if chosen is None:
        fit = [o for o in offers if o.reliability >= 0.95]
        hosts = Counter(host for host, _ in {(o.host_id, o.machine_id) for o in fit})
        most = sum(min(2, count) for count in hosts.values())
        enough = [o for o in fit if o.gpu_ram_mb >= max(need.vram_mb for need in wanted)]
        assert most < len(wanted) or len({o.machine_id for o in enough}) < len(wanted)
        return
    assert len(chosen) == len(wanted)
    assert len({o.id for o in chosen}) == len({o.machine_id for o in chosen}) == len(chosen)
    assert max(Counter(o.host_id for o in chosen).values()) <= 2
    assert all(o.gpu_ram_mb >= need.vram_mb for o, need in zip(chosen, wanted, strict=True))


def test_the_table_counts_what_each_filter_removes_and_what_it_removes_alone() -> None:
    rows = filter_table(market(), NEED, STRICT, bad_machines=frozenset({60415}))
    assert rows[0] == ("filter", "wanted", "rules out", "it alone")
    assert {row[0]: row[1:] for row in rows[1:]} == {
        "download": ("200 Mbit/s", "1", "1"),
        "reliability": ("0.95", "1", "1"),
        "CUDA": ("12.8", "1", "1"),
        "known bad machine": ("no", "1", "1"),
        "same machine or host": ("1 and 2", "1", "1"),
    }


def test_an_offer_that_two_filters_remove_is_removed_by_neither_alone() -> None:
    rows = filter_table([machine(1, 0.1, inet_down=10, reliability2=0.5)], NEED, OfferWishes())
    assert {row[0]: row[2:] for row in rows[1:]} == {"download": ("1", "0"), "reliability": ("1", "0")}


def test_too_few_offers_is_an_error_with_the_table() -> None:
    error = too_few_offers(market(), needs(5), STRICT)
    assert error.exit_status == 1
    assert "5 stages need a machine each" in error.what
    assert "6 offers looked at 3 fit, on 2 machines; nothing was rented" in error.what
    assert too_few_offers([], [NEED], STRICT).what.startswith("stage 0 needs a machine, and of the 0 offers")
    shown = describe_error(error)
    assert "  how many offers each filter rules out, and how many it alone does:" in shown
    assert any("CUDA" in line and "12.8" in line for line in shown)


def test_a_gpu_that_nobody_offers_is_answered_with_names_of_those_on_offer() -> None:
    offers = [machine(1, 0.1, gpu_name="RTX 4090"), machine(2, 0.1, gpu_name="H100 NVL")]

    def remedy(name: str) -> str:
        return too_few_offers(offers, needs(5), OfferWishes(gpu_names=(name,))).remedy or ""

    assert remedy("RTX4090") == "No GPU on offer is called RTX4090; did you mean --gpu 'RTX 4090'?"
    assert remedy("banana") == "No GPU on offer is called banana; on offer are H100 NVL, RTX 4090."
    assert "Loosen the filter" in remedy("rtx_4090")


def test_an_empty_market_has_a_table_all_the_same() -> None:
    error = too_few_offers([], needs(2), STRICT)
    assert "0 offers" in error.what


def test_pages_are_merged_by_offer() -> None:
    again = machine(1, 0.5)
    assert merged([[machine(1, 0.1), machine(2, 0.2)], [again]]) == [again, machine(2, 0.2)]
