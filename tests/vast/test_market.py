"""Asking the market: pages, the second search that explains, and the error of too few."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import respx

from ppsmoke.errors import TooFewOffers, VastUnavailable
from ppsmoke.vast.lease_events import FindOffer
from ppsmoke.vast.market import StageOffers
from ppsmoke.vast.offers import SEARCH_LIMIT, OfferWishes, Strategy
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed
from tests.vast.kit import URL, Clock, offer, replies, use_client

NEEDS = [StageNeed(stage, 8000, 16, Traffic(0.5)) for stage in range(3)]


class Market:
    """Answers searches from a list of offers, 64 at a time and cheapest first, as `filters` lets through."""

    def __init__(self, offers: Sequence[Offer], filters: Callable[[Offer, dict[str, Any]], bool] | None = None) -> None:
        self.offers = sorted(offers, key=lambda o: o.price_per_hour_usd)
        self.filters = filters or (lambda _offer, _query: True)
        self.queries: list[dict[str, Any]] = []

    async def search_offers(self, query: dict[str, Any]) -> list[Offer]:
        self.queries.append(query)
        least = query.get("dph_total", {}).get("gte", 0)
        fit = [o for o in self.offers if o.price_per_hour_usd >= least and self.filters(o, query)]
        return fit[:SEARCH_LIMIT]


def machines(count: int, first: int = 1, **changes: Any) -> list[Offer]:
    return [
        offer(**{"id": n, "machine_id": n, "host_id": n, "dph_total": n / 1000} | changes)
        for n in range(first, first + count)
    ]


def choose(market: Market, **options: Any) -> tuple[Offer, ...]:
    return asyncio.run(StageOffers(market, NEEDS, OfferWishes(), **options).choose())


def test_one_search_is_enough_when_it_gives_enough() -> None:
    market = Market(machines(100))
    chosen = choose(market)
    assert [o.id for o in chosen] == [1, 2, 3]
    assert len(market.queries) == 1


def test_the_next_page_begins_at_the_last_price() -> None:
    market = Market([*machines(100, reliability2=0.5), *machines(3, first=101)])
    chosen = choose(market)
    assert [o.id for o in chosen] == [101, 102, 103]
    assert [q.get("dph_total") for q in market.queries] == [None, {"gte": 0.064}]


def test_many_offers_of_one_price_do_not_page_for_ever() -> None:
    market = Market(machines(300, dph_total=0.2, reliability2=0.5))
    with pytest.raises(TooFewOffers):
        choose(market)
    assert len(market.queries) == 3, "one page, the same page again, and the search that explains"


def test_the_median_needs_the_whole_market() -> None:
    market = Market(machines(100))
    chosen = choose(market, strategy=Strategy.MEDIAN)
    assert sorted(o.id for o in chosen) == [49, 50, 51] or sorted(o.id for o in chosen) == [50, 51, 52]
    assert len(market.queries) == 2


def test_too_few_are_explained_by_a_search_without_the_wishes() -> None:
    def filters(found: Offer, query: dict[str, Any]) -> bool:
        return "reliability" not in query or found.reliability >= query["reliability"]["gte"]

    market = Market([*machines(2), *machines(5, first=10, reliability2=0.9)], filters)
    with pytest.raises(TooFewOffers, match="of the 7 offers looked at 2 fit") as caught:
        choose(market)
    assert any("reliability" in line and line.split()[-2:] == ["5", "5"] for line in caught.value.log_tail)
    assert "reliability" not in market.queries[-1]


def test_what_the_second_search_finds_is_taken() -> None:
    market = Market(machines(3), lambda _offer, query: "reliability" not in query)
    chosen = choose(market)
    assert len(chosen) == 3


def test_known_bad_machines_are_kept_out_of_both_searches() -> None:
    market = Market(machines(4))
    chosen = choose(market, bad_machines=frozenset({1}))
    assert [o.id for o in chosen] == [2, 3, 4]
    assert market.queries[0]["machine_id"] == {"notin": [1]}


def wish(*tried: int, hosts: tuple[int, ...] = ()) -> FindOffer:
    """For stage 1, beside the machines (and offers) of these numbers."""
    return FindOffer(1, frozenset(tried), frozenset(tried), hosts)


def test_another_offer_comes_from_what_was_seen_a_moment_ago() -> None:
    market, clock = Market(machines(10)), Clock()

    async def work() -> list[int]:
        offers = StageOffers(market, NEEDS, OfferWishes(), now=clock.now)
        await offers.choose()
        return [(await offers.another(wish(1, 2, 3))).id, (await offers.another(wish(1, 2, 3, 4, hosts=(5, 5)))).id]

    assert asyncio.run(work()) == [4, 6]
    assert len(market.queries) == 1


def test_another_offer_is_searched_for_when_the_view_is_old_or_used_up() -> None:
    market, clock = Market(machines(3)), Clock()

    async def work() -> list[int]:
        offers = StageOffers(market, NEEDS, OfferWishes(), now=clock.now)
        await offers.choose()
        market.offers = machines(2, first=8)
        used_up = await offers.another(wish(1, 2, 3))
        market.offers = machines(1, first=5)
        await clock.sleep(61)
        return [used_up.id, (await offers.another(wish(1, 2, 3, 8))).id]

    assert asyncio.run(work()) == [8, 5], "9 was seen, a minute ago"
    assert len(market.queries) == 3


def test_a_stage_that_finds_no_other_machine_says_why() -> None:
    market = Market(machines(3))
    with pytest.raises(TooFewOffers, match="stage 1 needs a machine, and of the 3 offers") as caught:
        asyncio.run(StageOffers(market, NEEDS, OfferWishes()).another(wish(1, 2, 3)))
    assert any("same machine or host" in line for line in caught.value.log_tail)


@respx.mock
def test_the_client_is_a_market() -> None:
    respx.post(f"{URL}/api/v0/bundles/").mock(side_effect=replies("search_offers_6"))
    chosen = use_client(lambda c: StageOffers(c, NEEDS[:2], OfferWishes(min_cuda=12.8)).choose(), key=None)
    assert [o.id for o in chosen] == [31224551, 31190338]


@respx.mock
def test_a_market_that_cannot_be_asked_is_not_an_empty_one() -> None:
    respx.post(f"{URL}/api/v0/bundles/").mock(side_effect=replies("err_503_html_empty_title"))
    with pytest.raises(VastUnavailable):
        use_client(lambda c: StageOffers(c, NEEDS, OfferWishes()).choose())
