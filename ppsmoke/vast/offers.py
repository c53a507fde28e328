"""Which offers a run takes. Pure: what the market showed in, one offer for each stage out.

The service does not always honour a search's filters, so each is checked again here; the same checks count what they
removed, for the user who gets too few.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ppsmoke.errors import TooFewOffers
from ppsmoke.vast.prices import run_cost_usd
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.wording import columns, counted

SEARCH_LIMIT = 64
"""The most offers one search was seen to give, whatever it asked for."""
MOST_PER_HOST = 2

_EXPECTED_HOURS = 0.25
_NAMED = 8
_NUMBER = re.compile(r"\d+")


class Strategy(StrEnum):
    """CHEAPEST: by the cost of the run. MEDIAN: around the middle price, where fewer hosts fail to start."""

    CHEAPEST = "cheapest"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True)
class OfferWishes:
    """What every machine of a run must have, beside its stage's need. Empty or None: any.

    `gpu_names` as the market spells them ("RTX 4090"; `_` counts as a blank). Countries are two-letter codes. Links in
    Mbit/s as the host measured them. `max_price_per_hour_usd` is for one machine.
    """

    gpu_names: tuple[str, ...] = ()
    min_cuda: float | None = 12.0
    min_driver: str = ""
    min_compute_cap: int = 700
    min_inet_down_mbps: float = 200.0
    min_inet_up_mbps: float = 50.0
    min_reliability: float = 0.95
    max_price_per_hour_usd: float | None = None
    countries: tuple[str, ...] = ()
    not_countries: tuple[str, ...] = ()
    verified: bool = True
    datacenter: bool = False
    min_seconds_left: float = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Check:
    """One filter: its name, what it wants in words, and whether an offer passes."""

    name: str
    wants: str
    passes: Callable[[Offer], bool]


@dataclass(frozen=True, slots=True)
class Taken:
    """What may not be taken again: the offers and machines tried in this run, and the hosts of those it has now."""

    offers: frozenset[int] = frozenset()
    machines: frozenset[int] = frozenset()
    hosts: tuple[int, ...] = ()

    def is_free(self, offer: Offer) -> bool:
        """Whether it is another offer, on another machine, and at most the second of its host."""
        if offer.id in self.offers or offer.machine_id in self.machines:
            return False
        return offer.host_id is None or self.hosts.count(offer.host_id) < MOST_PER_HOST

    def and_also(self, offer: Offer) -> Taken:
        host = () if offer.host_id is None else (offer.host_id,)
        return Taken(self.offers | {offer.id}, self.machines | {offer.machine_id}, self.hosts + host)


NOTHING_TAKEN = Taken()


def search_query(
    wishes: OfferWishes, needs: Sequence[StageNeed], bad_machines: Iterable[int] = (), price_from_usd: float = 0.0
) -> dict[str, Any]:
    """The search that leaves room for every stage: the smallest need of each kind. Offers come cheapest first.

    `price_from_usd` asks for the next page, since a search has none. The disk is part of the query because an offer's
    price holds for it.
    """
    query: dict[str, Any] = {
        **broad_query(needs),
        "gpu_ram": {"gte": min(need.vram_mb for need in needs)},
        "disk_space": {"gte": min(need.disk_gb for need in needs)},
        "reliability": {"gte": wishes.min_reliability},
        "inet_down": {"gte": wishes.min_inet_down_mbps},
        "inet_up": {"gte": wishes.min_inet_up_mbps},
        "compute_cap": {"gte": wishes.min_compute_cap},
        "duration": {"gte": wishes.min_seconds_left},
    }
    if wishes.gpu_names:
        query["gpu_name"] = {"in": [spelled(name) for name in wishes.gpu_names]}
    if wishes.min_cuda is not None:
        query["cuda_max_good"] = {"gte": wishes.min_cuda}
    if wishes.verified:
        query["verified"] = {"eq": True}
    if wishes.datacenter:
        query["datacenter"] = {"eq": True}
    price = {"gte": price_from_usd} if price_from_usd else {}
    if wishes.max_price_per_hour_usd is not None:
        price["lte"] = wishes.max_price_per_hour_usd
    if price:
        query["dph_total"] = price
    places = {
        **({"in": [code.upper() for code in wishes.countries]} if wishes.countries else {}),
        **({"notin": [code.upper() for code in wishes.not_countries]} if wishes.not_countries else {}),
    }
    if places:
        query["geolocation"] = places
    bad = sorted(bad_machines)
    if bad:
        query["machine_id"] = {"notin": bad}
    return query


def broad_query(needs: Sequence[StageNeed]) -> dict[str, Any]:
    """All single GPUs that can be rented now, cheapest first: what the wishes are counted against."""
    return {
        "num_gpus": {"eq": 1},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "type": "on-demand",
        "order": [["dph_total", "asc"]],
        "limit": SEARCH_LIMIT,
        "allocated_storage": max(need.disk_gb for need in needs),
    }


def checks(wishes: OfferWishes, need: StageNeed, bad_machines: frozenset[int] = frozenset()) -> tuple[Check, ...]:
    """Every filter that an offer for this stage must pass by itself."""
    names = {_folded(name) for name in wishes.gpu_names}
    allowed = {code.upper() for code in wishes.countries}
    refused = {code.upper() for code in wishes.not_countries}
    cap = wishes.max_price_per_hour_usd
    down, up = wishes.min_inet_down_mbps, wishes.min_inet_up_mbps
    found = [
        Check("to be had now", "rentable", lambda o: o.rentable and not o.rented),
        Check("number of GPUs", "1", lambda o: o.num_gpus == 1),
        Check("GPU memory", f"{need.vram_mb / 1000:.1f} GB", lambda o: o.gpu_ram_mb >= need.vram_mb),
        Check("disk", f"{need.disk_gb:g} GB", lambda o: o.disk_gb >= need.disk_gb),
        Check(
            "compute capability",
            f"{wishes.min_compute_cap / 100:.1f}",
            lambda o: o.compute_cap is not None and o.compute_cap >= wishes.min_compute_cap,
        ),
        Check("download", f"{down:g} Mbit/s", lambda o: o.inet_down_mbps >= down),
        Check("upload", f"{up:g} Mbit/s", lambda o: o.inet_up_mbps >= up),
        Check("reliability", f"{wishes.min_reliability:g}", lambda o: o.reliability >= wishes.min_reliability),
        Check(
            "offer lasts",
            f"{wishes.min_seconds_left / 3600:g} h",
            lambda o: o.seconds_left is None or o.seconds_left >= wishes.min_seconds_left,
        ),
    ]
    if names:
        found.append(Check("GPU", ", ".join(map(spelled, wishes.gpu_names)), lambda o: _folded(o.gpu_name) in names))
    if wishes.min_cuda is not None:
        least = wishes.min_cuda
        found.append(Check("CUDA", f"{least:g}", lambda o: o.cuda is not None and o.cuda >= least))
    if wishes.min_driver:
        oldest = _version(wishes.min_driver)
        found.append(Check("driver", wishes.min_driver, lambda o: _version(o.driver) >= oldest))
    if cap is not None:
        found.append(Check("price per hour", f"{cap:.3f} USD", lambda o: o.price_per_hour_usd <= cap))
    if allowed:
        found.append(Check("country", ", ".join(sorted(allowed)), lambda o: o.country in allowed))
    if refused:
        found.append(Check("country", "not " + ", ".join(sorted(refused)), lambda o: o.country not in refused))
    if wishes.verified:
        found.append(Check("verified host", "yes", lambda o: o.verified))
    if wishes.datacenter:
        found.append(Check("datacenter", "yes", lambda o: o.datacenter))
    if bad_machines:
        found.append(Check("known bad machine", "no", lambda o: o.machine_id not in bad_machines))
    return tuple(found)


def find_offer(
    market: Iterable[Offer],
    need: StageNeed,
    wishes: OfferWishes,
    *,
    taken: Taken = NOTHING_TAKEN,
    bad_machines: frozenset[int] = frozenset(),
    strategy: Strategy = Strategy.CHEAPEST,
) -> Offer | None:
    """The best offer for a stage beside what is taken."""
    wanted = checks(wishes, need, bad_machines)
    fit = [offer for offer in market if all(check.passes(offer) for check in wanted) and taken.is_free(offer)]
    return next(iter(_ranked(fit, need, strategy)), None)


def choose_offers(
    market: Sequence[Offer],
    needs: Sequence[StageNeed],
    wishes: OfferWishes,
    *,
    bad_machines: frozenset[int] = frozenset(),
    strategy: Strategy = Strategy.CHEAPEST,
) -> tuple[Offer, ...] | None:
    """One offer for each stage, in stage order; None when there are too few.

    The stage that needs most chooses first, so that it is not left with what the others spared.
    """
    chosen: dict[int, Offer] = {}
    taken = NOTHING_TAKEN
    for need in sorted(needs, key=lambda n: (-n.vram_mb, -n.disk_gb, n.stage)):
        offer = find_offer(market, need, wishes, taken=taken, bad_machines=bad_machines, strategy=strategy)
        if offer is None:
            return None
        chosen[need.stage] = offer
        taken = taken.and_also(offer)
    return tuple(chosen[need.stage] for need in needs)


def too_few_offers(
    market: Sequence[Offer],
    needs: Sequence[StageNeed],
    wishes: OfferWishes,
    *,
    taken: Taken = NOTHING_TAKEN,
    bad_machines: frozenset[int] = frozenset(),
) -> TooFewOffers:
    """The error of a market that does not suffice for these stages, with the table of what each filter removed."""
    hardest = max(needs, key=lambda need: (need.vram_mb, need.disk_gb))
    fit = [o for o in market if all(check.passes(o) for check in checks(wishes, hardest, bad_machines))]
    machines = len({offer.machine_id for offer in fit})
    found = f"{len(fit)} fit, on {counted(machines, 'machine')}" if fit else "none fits"
    who = f"{len(needs)} stages need a machine each" if len(needs) > 1 else f"stage {hardest.stage} needs a machine"
    return TooFewOffers(
        f"{who}, and of the {len(market)} offers looked at {found}{'; nothing was rented' if len(needs) > 1 else ''}",
        remedy=_other_gpus(market, wishes) or "Loosen the filter that rules out most, or use fewer stages.",
        phase="search",
        log_tail=columns(filter_table(market, hardest, wishes, taken, bad_machines), right=lambda column: column > 1),
    )


def filter_table(
    market: Sequence[Offer],
    need: StageNeed,
    wishes: OfferWishes,
    taken: Taken = NOTHING_TAKEN,
    bad_machines: frozenset[int] = frozenset(),
) -> list[tuple[str, str, str, str]]:
    """Rows (filter, wanted, rules out, it alone) with their head; the last figure counts offers that pass the rest.

    Then what it costs to use a machine once only, beside what is taken, and a host twice at most.
    """
    wanted = checks(wishes, need, bad_machines)
    failing = [[check.name + check.wants for check in wanted if not check.passes(offer)] for offer in market]
    rows = [("filter", "wanted", "rules out", "it alone")]
    for check in wanted:
        key = check.name + check.wants
        removes = sum(key in names for names in failing)
        alone = sum(names == [key] for names in failing)
        if removes:
            rows.append((check.name, check.wants, str(removes), str(alone)))
    passing = [offer for offer, names in zip(market, failing, strict=True) if not names]
    crowded = 0
    for offer in _ranked(passing, need, Strategy.CHEAPEST):
        if taken.is_free(offer):
            taken = taken.and_also(offer)
        else:
            crowded += 1
    if crowded:
        rows.append(("same machine or host", f"1 and {MOST_PER_HOST}", str(crowded), str(crowded)))
    return rows


def _other_gpus(market: Sequence[Offer], wishes: OfferWishes) -> str:
    """What to say where no GPU on offer is called as was asked for; empty where one is."""
    names = sorted({spelled(offer.gpu_name) for offer in market})
    wanted = {_folded(name) for name in wishes.gpu_names}
    if not wanted or not names or wanted & {name.casefold() for name in names}:
        return ""
    like = {name.casefold().replace(" ", ""): name for name in names}
    near = [like[x] for name in wanted for x in difflib.get_close_matches(name.replace(" ", ""), like, n=3, cutoff=0.7)]
    said = f"No GPU on offer is called {', '.join(map(spelled, wishes.gpu_names))}"
    if near:
        return f"{said}; did you mean --gpu {' or '.join(map(repr, dict.fromkeys(near)))}?"
    return f"{said}; on offer are {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}."


def spelled(gpu_name: str) -> str:
    """A GPU's name as the market has it: words with blanks."""
    return " ".join(gpu_name.replace("_", " ").split())


def merged(pages: Iterable[Iterable[Offer]]) -> list[Offer]:
    """All offers of several searches, each once; the latest news of one counts."""
    found: dict[int, Offer] = {}
    for page in pages:
        for offer in page:
            found[offer.id] = offer
    return list(found.values())


def _ranked(fit: Sequence[Offer], need: StageNeed, strategy: Strategy) -> list[Offer]:
    """Best first. The more reliable one wins between equals."""
    by_cost = sorted(fit, key=lambda o: (run_cost_usd(o, _EXPECTED_HOURS, need.traffic), -o.reliability, o.id))
    if strategy is Strategy.CHEAPEST:
        return by_cost
    middle = (len(by_cost) - 1) / 2
    ranks = sorted(range(len(by_cost)), key=lambda rank: (abs(rank - middle), rank))
    return [by_cost[rank] for rank in ranks]


def _folded(gpu_name: str) -> str:
    return spelled(gpu_name).casefold()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(text))
