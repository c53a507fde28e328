"""Which machines, at which price, and that the user wants them: chosen, priced, bounded, and asked about."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ppsmoke.errors import NotConfirmed, TooFewOffers, UsageError
from ppsmoke.vast.plan_text import describe_offers
from ppsmoke.vast.prices import Estimate, estimate, price_per_hour_usd, usd
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed

USUAL_HOURS = 0.25
"""From the first create to the verified end, where no budget says otherwise."""

_OFFERS_AGE_S = 60.0  # what the market showed is a snapshot
_PRICE_ROSE = 1.01


class Market(Protocol):
    """The one call that is needed here."""

    async def choose(self) -> tuple[Offer, ...]: ...


class Agreement:
    """`max_price`: USD an hour of all machines, None for no bound; `max_spend`: USD of the run; `hours`: what it is
    reckoned with. `ask` is None where nobody can be asked, or has agreed to all within `max_spend` before."""

    def __init__(
        self,
        market: Market,
        needs: Sequence[StageNeed],
        *,
        max_price: float | None,
        max_spend: float,
        hours: float,
        say: Callable[[str], None],
        ask: Callable[[str], Awaitable[bool]] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._market = market
        self._needs = tuple(needs)
        self._max_price = max_price
        self._max_spend = max_spend
        self._hours = hours
        self._say = say
        self._ask = ask
        self._now = now

    async def choose(self) -> tuple[Offer, ...]:
        """One offer a stage. Raises TooFewOffers, also when they cost too much together, and VastFailed."""
        offers = await self._market.choose()
        price, most = price_per_hour_usd(offers), self._max_price
        if most is not None and price > most:
            raise TooFewOffers(
                f"the {len(offers)} machines would cost {price:.3f} USD an hour together, more than the {most:g} of "
                "--max-price; nothing was rented",
                remedy="Raise --max-price, use fewer stages, or loosen a filter.",
                phase="search",
            )
        return offers

    def costs(self, offers: Sequence[Offer]) -> Estimate:
        """Of the run on these machines."""
        return estimate(offers, self._hours, [need.traffic for need in self._needs])

    async def agreed(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """The offers to take, which are others when the user took long to answer: at a price that was agreed to.

        Raises NotConfirmed, UsageError for a price above `max_spend` that nobody was asked about, and as `choose` does.
        """
        while True:
            costs = self.costs(offers)
            for line in describe_offers(offers, costs):
                self._say(line)
            asked = self._now()
            await self._confirm(costs.total_usd, len(offers))
            if self._now() - asked < _OFFERS_AGE_S:
                return offers
            self._say("that took more than a minute; asking the market again")
            offers = await self.choose()
            if self.costs(offers).total_usd <= costs.total_usd * _PRICE_ROSE:
                return offers

    async def _confirm(self, total: float, count: int) -> None:
        over = f"the run may cost about {usd(total)} USD, more than the {usd(self._max_spend)} of --max-spend"
        if self._ask is None:
            if total > self._max_spend:
                raise UsageError(f"{over}; nothing was rented", remedy="Raise --max-spend, or choose cheaper machines.")
            return
        if total > self._max_spend:
            self._say(f"note: {over}; at that it is ended")
        if not await self._ask(f"Rent these {count} machines, for about {usd(total)} USD?"):
            raise NotConfirmed("you did not agree, and nothing was rented", phase="confirmation")
