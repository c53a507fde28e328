"""The offers that were looked at before the choice, and why each one was taken or left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppsmoke.vast.offers import Check, OfferWishes, checks
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed

MOST = 400


def considered_json(
    market: Sequence[Offer],
    chosen: Sequence[Offer],
    needs: Sequence[StageNeed],
    wishes: OfferWishes,
    bad_machines: frozenset[int] = frozenset(),
) -> list[dict[str, Any]]:
    """An object an offer, the chosen ones first and then the cheapest, MOST in all: `stage` it was chosen for, or
    `left_out`, the reasons: filters that it does not pass, of the stage that asks least, or that others were better."""
    wanted = checks(wishes, min(needs, key=lambda need: (need.vram_mb, need.disk_gb)), bad_machines)
    stages = {offer.id: stage for stage, offer in enumerate(chosen)}
    machines = {offer.machine_id for offer in chosen}
    cheapest = sorted(market, key=lambda offer: (offer.id not in stages, offer.price_per_hour_usd, offer.id))[:MOST]
    rows = []
    for offer in cheapest:
        row: dict[str, Any] = {
            "offer": offer.id,
            "machine_id": offer.machine_id,
            "host_id": offer.host_id,
            "gpu_name": offer.gpu_name,
            "gpu_ram_mb": offer.gpu_ram_mb,
            "country": offer.country,
            "price_per_hour_usd": round(offer.price_per_hour_usd, 4),
        }
        if offer.id in stages:
            rows.append({**row, "stage": stages[offer.id]})
        else:
            rows.append({**row, "left_out": _reasons(offer, wanted, machines)})
    return rows


def _reasons(offer: Offer, wanted: Sequence[Check], machines: set[int]) -> list[str]:
    failed = [f"{check.name}: wanted {check.wants}" for check in wanted if not check.passes(offer)]
    if failed:
        return failed
    return [
        "its machine is taken by another stage" if offer.machine_id in machines else "others were the better choice"
    ]
