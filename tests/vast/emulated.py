"""For tests: the emulator served from this process, a client that is paced alike, and a small renting run over both."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import httpx

from ppsmoke.errors import TooFewOffers
from ppsmoke.process_mark import this_boot, this_host
from ppsmoke.redaction import Redactor
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.exchange import Timeouts
from ppsmoke.vast.instance_logs import read_logs, write_logs
from ppsmoke.vast.journal import Journal, RunHeader
from ppsmoke.vast.lease_book import LeaseBook, Renting, new_book
from ppsmoke.vast.lease_events import Entry, FindOffer
from ppsmoke.vast.lease_labels import stage_label
from ppsmoke.vast.lease_records import BookState, Candidate, LeaseLimits, LeaseTimes
from ppsmoke.vast.records import CreateRequest, Instance, Offer
from tests.vast_emulator.account import Account
from tests.vast_emulator.clock import ServiceClock
from tests.vast_emulator.faults import FaultPlan, parse_faults
from tests.vast_emulator.limits import RateLimits
from tests.vast_emulator.nodes import Nodes
from tests.vast_emulator.rows import make_offers
from tests.vast_emulator.server import Server, serving
from tests.vast_emulator.service import Service

KEY = "emulated-key"
SCALE = 0.004
RUN_ID = "5eed" * 8
FOREIGN_LABEL = "someone's notebook"
OTHER_RUN_LABEL = stage_label("0af3" * 8, 0, "aa")


@dataclass(slots=True)
class Emulated:
    """One emulator and the client's side of it."""

    service: Service
    url: str
    scale: float
    timeout_s: float
    running_s: float = 20.0
    foreign: list[int] = field(default_factory=list)

    def client(self, key: str = KEY) -> VastClient:
        """A client that is paced as the emulator wants it."""
        return VastClient(
            ApiKey(key, "a test"),
            base_url=self.url,
            transport=httpx.AsyncHTTPTransport(verify=False),
            timeouts=Timeouts(connect_s=2.0, request_s=self.timeout_s, create_s=self.timeout_s),
            time_scale=self.scale,
            log_patience_s=8.0 / self.scale,
        )

    def times(self) -> LeaseTimes:
        """The book's, as short; what a busy machine may be slow at has real time."""
        return replace(LeaseTimes().scaled(self.scale), running=self.running_s, logs=10.0, release=30.0, hurry=10.0)

    def left(self) -> list[str]:
        """What the ledger shows alive of what the tests rented, late effects included; foreign ones must live on."""
        self.service.wait_for_late_effects()
        assert self.service.broken == []
        alive = self.service.account.ledger.alive()
        ids = {life.instance_id for life in alive}
        assert set(self.foreign) <= ids, "an instance of somebody else was destroyed"
        return [life.describe() for life in alive if life.instance_id not in self.foreign]

    def billed_after(self, moment: float) -> float:
        """USD that the run's instances cost from then until an hour from now; those of others run on."""
        until = self.service.wait_for_late_effects() + 3600.0
        ledger = self.service.account.ledger
        price = sum(x.price_per_hour for x in ledger.lives if x.instance_id in self.foreign)
        return ledger.billed(moment, until) - price * (until - moment) / 3600


@asynccontextmanager
async def emulated(
    faults: str = "",
    *,
    scale: float = SCALE,
    timeout_s: float = 5.0,
    chaos: float = 0.0,
    seed: int = 1,
    nodes: Nodes | None = None,
    limits: float = 1.0,
    serve: Callable[[Service], AbstractContextManager[Server]] = serving,
) -> AsyncIterator[Emulated]:
    """An emulator with two instances that are not ours, one of them of another run of this tool.

    `serve`: gives it its address.
    """
    clock = ServiceClock(scale)
    offers = make_offers(60, seed)
    service = Service(
        clock=clock,
        key=KEY,
        offers=offers,
        account=Account(clock, seed),
        faults=FaultPlan(parse_faults(faults), chaos, random.Random(seed)),
        limits=RateLimits(limits),
    )
    foreign = [
        service.account.rent(offer, {"image": "x", "label": label}, "runs", -3600.0).instance_id
        for offer, label in zip(offers[-2:], (FOREIGN_LABEL, OTHER_RUN_LABEL), strict=True)
    ]
    service.account.set_nodes(nodes)
    with serve(service) as server:
        yield Emulated(service, server.url, scale, timeout_s, foreign=foreign)


def dead_header(run_id: str = RUN_ID, url: str = "") -> RunHeader:
    """Of a process of this machine that is no more."""
    return RunHeader(run_id, 2**22 + 1, 1.0, this_host(), url, boot=this_boot())


@dataclass(slots=True)
class SmallRun:
    """Search, rent, hold a while, release: the steps of a run without its nodes."""

    emulated: Emulated
    client: VastClient
    directory: Path
    stages: int = 2
    run_id: str = RUN_ID
    limits: LeaseLimits = field(default_factory=LeaseLimits)
    request_for: Callable[[Candidate], CreateRequest] | None = None
    remembered: list[tuple[int, str]] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)
    lost_one: asyncio.Event = field(default_factory=asyncio.Event)
    entries: list[Entry] = field(default_factory=list)
    _nonces: count[int] = field(default_factory=count)

    def book(self, journal: Journal) -> LeaseBook:
        return LeaseBook(self.client, journal, self.fresh(), self.renting(), news=self.entries.append)

    def fresh(self) -> BookState:
        return new_book(self.run_id, self.stages, self.emulated.times(), self.limits)

    def renting(self) -> Renting:
        return Renting(
            run_id=self.run_id,
            request_for=self.request_for or plain_request,
            offers=self,
            save_logs=self.save_logs,
            remember=lambda machine_id, reason: self.remembered.append((machine_id, reason)),
            on_lost=self._on_lost,
            new_nonce=lambda: f"n{next(self._nonces)}",
        )

    def journal(self) -> Journal:
        header = dead_header(self.run_id, self.emulated.url)
        return Journal.begin(self.directory, header, at=self.emulated.service.clock.date(0.0))

    async def search(self) -> list[Offer]:
        """The cheapest offers, one of each machine."""
        found = await self.client.search_offers({"order": [["dph_total", "asc"]], "verified": {"eq": True}})
        return list({offer.machine_id: offer for offer in reversed(found)}.values())[::-1]

    async def another(self, wish: FindOffer) -> Offer:
        for offer in await self.search():
            if offer.id not in wish.without_offers and offer.machine_id not in wish.without_machines:
                return offer
        raise TooFewOffers("the market is empty")

    async def save_logs(self, instance: Instance) -> None:
        write_logs(await read_logs(self.client, [instance], deadline_s=8.0), self.directory, Redactor())

    def _on_lost(self, stage: int, reason: str) -> None:
        self.lost.append((stage, reason))
        self.lost_one.set()

    async def hold(self) -> None:
        """As long as a short answer takes, one look at the held instances included."""
        await asyncio.sleep(35.0 * self.emulated.scale)


def plain_request(candidate: Candidate) -> CreateRequest:
    return CreateRequest(candidate.label, "python:3.12-slim", 10.0, "echo up", {"STAGE": str(candidate.stage)})
