"""The user agrees to machines and a price; whoever takes long is shown the market anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ppsmoke.errors import NotConfirmed, TooFewOffers, UsageError
from ppsmoke.vast.agreement import Agreement
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed
from tests.vast.kit import offer

NEEDS = [StageNeed(stage, 1000.0, 10.0, Traffic(0.0)) for stage in range(2)]


def pair(price: float) -> tuple[Offer, ...]:
    return offer(id=1, dph_total=price), offer(id=2, dph_total=price)


class Desk:
    """A market that shows other offers each time, and a user who answers after some seconds."""

    def __init__(self, *prices: float, answers: list[tuple[float, bool]] | None = None) -> None:
        self.prices = list(prices)
        self.answers = answers
        self.said: list[str] = []
        self.asked: list[str] = []
        self.seconds = 100.0

    async def choose(self) -> tuple[Offer, ...]:
        return pair(self.prices.pop(0))

    async def ask(self, question: str) -> bool:
        assert self.answers is not None
        self.asked.append(question)
        took, answer = self.answers.pop(0)
        self.seconds += took
        return answer

    def agree(self, *, max_spend: float = 1.0, max_price: float | None = None) -> tuple[Offer, ...]:
        ask: Callable[[str], Awaitable[bool]] | None = self.ask if self.answers is not None else None
        agreement = Agreement(
            *(self, NEEDS),
            max_price=max_price,
            max_spend=max_spend,
            hours=0.25,
            say=self.said.append,
            ask=ask,
            now=lambda: self.seconds,
        )

        async def main() -> tuple[Offer, ...]:
            return await agreement.agreed(await agreement.choose())

        return asyncio.run(main())


def test_a_quick_yes_takes_what_was_shown() -> None:
    desk = Desk(0.2, answers=[(59.0, True)])
    assert desk.agree() == pair(0.2)
    assert desk.asked == ["Rent these 2 machines, for about 0.10 USD?"]
    assert any(line.startswith("price ") for line in desk.said)


def test_a_late_yes_has_the_market_asked_again_and_a_price_that_did_not_rise_is_taken() -> None:
    desk = Desk(0.2, 0.19, answers=[(61.0, True)])
    assert desk.agree() == pair(0.19)
    assert "asking the market again" in desk.said[-1]


def test_a_price_that_rose_meanwhile_is_asked_about_again() -> None:
    desk = Desk(0.2, 0.4, answers=[(61.0, True), (5.0, True)])
    assert desk.agree() == pair(0.4)
    assert desk.asked[1] == "Rent these 2 machines, for about 0.20 USD?"
    with pytest.raises(NotConfirmed):
        Desk(0.2, 0.4, answers=[(61.0, True), (5.0, False)]).agree()


def test_a_no_is_a_no() -> None:
    with pytest.raises(NotConfirmed, match="nothing was rented"):
        Desk(0.2, answers=[(1.0, False)]).agree()


def test_a_price_above_max_spend_needs_a_question() -> None:
    asked = Desk(8.0, answers=[(1.0, True)])
    assert asked.agree() == pair(8.0)
    assert any("more than the 1.00 of --max-spend; at that it is ended" in line for line in asked.said)
    with pytest.raises(UsageError, match=r"about 4\.00 USD, more than the 1\.00 of --max-spend; nothing was rented"):
        Desk(8.0).agree()
    assert Desk(8.0).agree(max_spend=4.0) == pair(8.0)


def test_all_together_have_a_price_per_hour() -> None:
    assert Desk(0.2).agree(max_price=0.4) == pair(0.2)
    with pytest.raises(TooFewOffers, match=r"would cost 0\.400 USD an hour together, more than the 0\.39"):
        Desk(0.2).agree(max_price=0.39)
    with pytest.raises(TooFewOffers):
        Desk(0.2, 0.3, answers=[(61.0, True)]).agree(max_price=0.5)
