"""The offers of one run: asking the market until the stages have theirs, or it is known why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ppsmoke.vast.considered import considered_json
from ppsmoke.vast.lease_events import FindOffer
from ppsmoke.vast.offers import (
    SEARCH_LIMIT,
    OfferWishes,
    Strategy,
    Taken,
    broad_query,
    choose_offers,
    find_offer,
    merged,
    search_query,
    too_few_offers,
)
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed

_MOST_PAGES = 4
_FRESH_S = 60.0


class Searching(Protocol):
    """The one call that is needed here; it takes no key."""

    async def search_offers(self, query: dict[str, Any]) -> list[Offer]: ...


class StageOffers:
    """Chooses an offer for each stage, and later others for machines that were gone or failed.

    What was seen of the market is a snapshot: it is asked again when it is older than a minute, or used up.
    """

    def __init__(
        self,
        api: Searching,
        needs: Sequence[StageNeed],
        wishes: OfferWishes,
        *,
        bad_machines: frozenset[int] = frozenset(),
        strategy: Strategy = Strategy.CHEAPEST,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._needs = tuple(needs)
        self._wishes = wishes
        self._bad_machines = bad_machines
        self._strategy = strategy
        self._now = now
        self._market: list[Offer] = []
        self._seen_at: float | None = None

    async def choose(self) -> tuple[Offer, ...]:
        """One offer for each stage, in stage order.

        Raises TooFewOffers with a table of what each filter removed, VastFailed when the market cannot be asked.
        """
        await self._look(self._has_all)
        chosen = self._choice()
        if chosen is None:
            await self._look_wider()
            chosen = self._choice()
        if chosen is None:
            raise too_few_offers(self._market, self._needs, self._wishes, bad_machines=self._bad_machines)
        return chosen

    async def another(self, wish: FindOffer) -> Offer:
        """An offer for one stage beside all that was tried. Raises as `choose` does."""
        need = next(need for need in self._needs if need.stage == wish.stage)
        taken = Taken(wish.without_offers, wish.without_machines, wish.hosts)
        found = self._find(need, taken) if self._is_fresh() else None
        if found is None:
            await self._look(lambda: self._find(need, taken) is not None)
            found = self._find(need, taken)
        if found is None:
            await self._look_wider()
            found = self._find(need, taken)
        if found is None:
            raise too_few_offers(self._market, [need], self._wishes, taken=taken, bad_machines=self._bad_machines)
        return found

    def considered(self, chosen: Sequence[Offer]) -> list[dict[str, Any]]:
        """What was looked at when these were chosen; see considered_json."""
        return considered_json(self._market, chosen, self._needs, self._wishes, self._bad_machines)

    def _choice(self) -> tuple[Offer, ...] | None:
        return choose_offers(
            self._market, self._needs, self._wishes, bad_machines=self._bad_machines, strategy=self._strategy
        )

    def _has_all(self) -> bool:
        return self._choice() is not None

    def _find(self, need: StageNeed, taken: Taken) -> Offer | None:
        return find_offer(
            self._market,
            need,
            self._wishes,
            taken=taken,
            bad_machines=self._bad_machines,
            strategy=self._strategy,
        )

    def _is_fresh(self) -> bool:
        return self._seen_at is not None and self._now() - self._seen_at < _FRESH_S

    async def _look(self, enough: Callable[[], bool]) -> None:
        """See the market anew, as many pages as it takes; for the middle price all of them."""
        self._market = []
        price_from_usd = 0.0
        for _ in range(_MOST_PAGES):
            query = search_query(self._wishes, self._needs, self._bad_machines, price_from_usd)
            page = await self._api.search_offers(query)
            news = {offer.id for offer in page} - {offer.id for offer in self._market}
            self._market = merged([self._market, page])
            self._seen_at = self._now()
            if len(page) < SEARCH_LIMIT or not news or (self._strategy is not Strategy.MEDIAN and enough()):
                return
            price_from_usd = max(offer.price_per_hour_usd for offer in page)

    async def _look_wider(self) -> None:
        """The service has filtered already: only a search without the wishes shows what they cost."""
        self._market = merged([self._market, await self._api.search_offers(broad_query(self._needs))])
