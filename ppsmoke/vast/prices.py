"""What machines cost. Pure; USD, hours and GB of 10^9 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ppsmoke.vast.records import Instance, Offer


def usd(amount: float) -> str:
    """Two decimals, and more where these would all be zeros."""
    return f"{amount:.2f}" if amount == 0 or abs(amount) >= 0.01 else f"{amount:.2g}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """GB that one machine takes in and sends out in a run."""

    down_gb: float
    up_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a whole run on the offers it would take."""

    price_per_hour_usd: float
    hours: float
    traffic_usd: float

    @property
    def total_usd(self) -> float:
        return self.price_per_hour_usd * self.hours + self.traffic_usd


def run_cost_usd(offer: Offer, hours: float, traffic: Traffic) -> float:
    """One machine for one run: its time with its disk, and what its traffic costs there."""
    return offer.price_per_hour_usd * hours + traffic_usd(offer, traffic)


def traffic_usd(offer: Offer, traffic: Traffic) -> float:
    return traffic.down_gb * offer.down_usd_per_gb + traffic.up_gb * offer.up_usd_per_gb


def price_per_hour_usd(offers: Iterable[Offer]) -> float:
    """Of all of them together."""
    return sum(offer.price_per_hour_usd for offer in offers)


def estimate(offers: Sequence[Offer], hours: float, traffic: Sequence[Traffic]) -> Estimate:
    """Of a run of that length; `traffic` has one entry for each offer."""
    return Estimate(
        price_per_hour_usd=price_per_hour_usd(offers),
        hours=hours,
        traffic_usd=sum(traffic_usd(offer, share) for offer, share in zip(offers, traffic, strict=True)),
    )


def spent_usd(instance: Instance, now: float) -> float | None:
    """What an instance has cost by `now`, at most: its price since its contract began; None when a figure is missing.

    An instance that only loads is billed less.
    """
    age_s = instance.age_s(now)
    if age_s is None or instance.price_per_hour_usd is None:
        return None
    return instance.price_per_hour_usd * age_s / 3600
