"""The offers that a run would take, as `--plan` shows them and before the user is asked: text and JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ppsmoke.vast.prices import Estimate, usd
from ppsmoke.vast.records import Offer
from ppsmoke.wording import columns

_HEAD = ("stage", "machine", "GPU", "memory", "where", "Mbit/s", "reliable", "USD/h")
_TEXT_COLUMNS = (2, 4)


def describe_offers(offers: Sequence[Offer], estimate: Estimate) -> list[str]:
    """A table with one offer a stage (down and up in Mbit/s), then what they cost together. It fits into 80 columns."""
    rows = [
        (
            str(stage),
            str(offer.machine_id),
            offer.gpu_name,
            f"{offer.gpu_ram_mb / 1000:.0f} GB",
            offer.country or "-",
            f"{offer.inet_down_mbps:.0f}/{offer.inet_up_mbps:.0f}",
            f"{offer.reliability:.3f}",
            f"{offer.price_per_hour_usd:.3f}",
        )
        for stage, offer in enumerate(offers)
    ]
    table = columns([_HEAD, *rows], right=lambda column: column not in _TEXT_COLUMNS)
    return [*table, "", describe_estimate(estimate)]


def describe_estimate(estimate: Estimate) -> str:
    """One line: per hour, and for the run."""
    minutes = estimate.hours * 60
    return (
        f"price        {estimate.price_per_hour_usd:.3f} USD/h; about {usd(estimate.total_usd)} USD in "
        f"{minutes:.0f} minutes, {estimate.traffic_usd:.2f} of it traffic"
    )


def offers_json(offers: Sequence[Offer], estimate: Estimate) -> dict[str, Any]:
    """The same as an object: `offers` in stage order, and `price` in USD."""
    return {
        "offers": [{"stage": stage, **asdict(offer)} for stage, offer in enumerate(offers)],
        "price": {**asdict(estimate), "total_usd": estimate.total_usd},
    }
