"""Asking the market until the stages have their offers, or it is known why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ppsmoke.vast.offers import (
    SEARCH_LIMIT,
    OfferWishes,
    Strategy,
    broad_query,
    choose_offers,
    merged,
    search_query,
    too_few_offers,
)
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed

_MOST_PAGES = 4


class Searching(Protocol):
    """The one call that is needed here; it takes no key."""

    async def search_offers(self, query: dict[str, Any]) -> list[Offer]: ...


async def offers_for_stages(
    api: Searching,
    needs: Sequence[StageNeed],
    wishes: OfferWishes,
    *,
    bad_machines: frozenset[int] = frozenset(),
    strategy: Strategy = Strategy.CHEAPEST,
) -> tuple[tuple[Offer, ...], list[Offer]]:
    """One offer for each stage, in stage order, and the market they were chosen from, for replacements.

    Raises TooFewOffers with a table of what each filter removed, VastFailed when the market cannot be asked. What was
    found is a snapshot: ask again when it is older than a minute.
    """
    market: list[Offer] = []
    price_from_usd = 0.0
    for _ in range(_MOST_PAGES):
        page = await api.search_offers(search_query(wishes, needs, bad_machines, price_from_usd))
        news = {offer.id for offer in page} - {offer.id for offer in market}
        market = merged([market, page])
        enough = choose_offers(market, needs, wishes, bad_machines=bad_machines) is not None
        # The middle price is not known before the dearest offer was seen.
        if len(page) < SEARCH_LIMIT or not news or (enough and strategy is not Strategy.MEDIAN):
            break
        price_from_usd = max(offer.price_per_hour_usd for offer in page)
    chosen = choose_offers(market, needs, wishes, bad_machines=bad_machines, strategy=strategy)
    if chosen is not None:
        return chosen, market
    # The service has filtered already: only a search without the wishes shows what they cost.
    market = merged([market, await api.search_offers(broad_query(needs))])
    chosen = choose_offers(market, needs, wishes, bad_machines=bad_machines, strategy=strategy)
    if chosen is not None:
        return chosen, market
    raise too_few_offers(market, needs, wishes, bad_machines=bad_machines)
