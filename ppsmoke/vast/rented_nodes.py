"""The nodes of a run on rented machines, from the first create call to the verified end of the last lease."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ppsmoke.errors import HostFailed, Interrupted, PpError, RunFailed, TooFewOffers
from ppsmoke.logs import log_tail
from ppsmoke.membership import local_config, wan_config
from ppsmoke.orchestrator.node_environment import node_deadlines
from ppsmoke.orchestrator.node_source import Network, NodeNews, Site
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.run_events import MoneySpent
from ppsmoke.vast.bad_machines import remember_failures
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.instance_logs import read_logs, write_logs
from ppsmoke.vast.instance_state import running_deadline_s
from ppsmoke.vast.journal import Journal
from ppsmoke.vast.lease_book import LeaseBook, Renting, new_book
from ppsmoke.vast.lease_events import FindOffer
from ppsmoke.vast.lease_owner import header_of_this_process
from ppsmoke.vast.lease_records import FINAL, LIVE, BookState, Candidate, LeaseLimits, LeaseTimes
from ppsmoke.vast.lease_report import leases_left
from ppsmoke.vast.options import RentalOptions
from ppsmoke.vast.place import DEFAULT_URL
from ppsmoke.vast.records import CreateRequest, Instance, Offer
from ppsmoke.vast.rental_news import RentalNews, WatchedListings
from ppsmoke.vast.stage_request import NodeTerms, create_request
from ppsmoke.vast.teardown_watch import torn_down
from ppsmoke.wording import counted

log = logging.getLogger("ppsmoke.vast")

_LOGS_SHARE = 0.9  # of the time for saving logs: what was read by then must still be written
_CENT = 0.01
_MONEY_S = 2.0
_MAYBE_OURS = ("its container ended", "it did not join")


class RentedNodes:
    """A node source; see NodeSource. It is also the lease book's source of further offers, within the price."""

    def __init__(self, options: RunOptions, renting: RentalOptions, view: View, client: VastApi) -> None:
        self._options = options
        self._renting = renting
        self._view = view
        self._client = client
        silence_s = options.deadlines.silence
        self.network = Network(
            loopback_only=renting.loopback_only,
            relay_urls=renting.relay_urls,
            relay_token=renting.relay_token,
            membership=local_config(silence_s) if renting.loopback_only else wan_config(silence_s),
            remote=True,
            files=renting.files,
        )
        self._times = lease_times(renting.time_scale)
        self._journal: Journal | None = None
        self._book: LeaseBook | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._offers = {offer.id: offer for offer in renting.offers}
        self._failed_machines: dict[int, str] = {}
        self._lost: set[int] = set()
        self._ending = False
        # Set by `start`.
        self._site: Site
        self._news: NodeNews
        self._terms: NodeTerms

    @property
    def state(self) -> BookState | None:
        """Of the leases; None before any was asked for."""
        return self._book.state if self._book is not None else None

    @property
    def spent_usd(self) -> float:
        return self._book.spent_usd if self._book is not None else 0.0

    async def start(self, site: Site, news: NodeNews) -> None:
        """Rent: a running machine for each stage. Raises what the lease book's `acquire` does, EnvironmentFault."""
        self._site, self._news = site, news
        self._terms = self._make_terms(site)
        renting = self._renting
        limits = LeaseLimits(
            replacements=renting.replacements, max_spend=renting.max_spend, time_scale=renting.time_scale
        )
        header = header_of_this_process(site.run_id, renting.vast_url, renting.account)
        self._journal = Journal.begin(renting.journal_dir, header, at=time.time())
        told = RentalNews(self._view, news, self._offers, self._options.num_stages)
        self._book = LeaseBook(
            WatchedListings(self._client, told),
            self._journal,
            new_book(site.run_id, self._options.num_stages, self._times, limits),
            Renting(
                run_id=site.run_id,
                request_for=self._request_for,
                offers=self,
                save_logs=self._save_logs,
                remember=self._failed_machines.__setitem__,
                on_lost=self._machine_lost,
                running_s=self._running_s,
            ),
            news=told.entry,
        )
        self._watching = [
            asyncio.create_task(self._watch_book(self._book)),
            asyncio.create_task(self._watch_for_teardown(self._journal.path)),
            asyncio.create_task(self._watch_money()),
        ]
        await self._book.acquire(renting.offers)

    async def replace(self, stages: Mapping[int, str]) -> bool:
        """Other machines, as often as the options allow. Raises as `start` does."""
        assert self._book is not None
        book = self._book
        await asyncio.gather(*(book.replace(stage, reason) for stage, reason in stages.items()))
        return True

    async def another(self, wish: FindOffer) -> Offer:
        """See OfferSource. Raises TooFewOffers, also for an offer that would exceed the price per hour."""
        offer = await self._renting.market.another(wish)
        most = self._renting.max_price
        self._offers[offer.id] = offer
        price = offer.price_per_hour_usd + self._price_of_others(wish.stage)
        if most is not None and price > most + _CENT / 100:
            raise TooFewOffers(
                f"stage {wish.stage}: with the next machine all would cost {price:.3f} USD an hour, "
                f"more than --max-price {most:.3f}",
                stage=wish.stage,
                phase="renting",
            )
        return offer

    def code_folder(self) -> str:
        return ""

    async def restarted(self, site: Site) -> None:
        """They find their way alone, as they did when they were rented."""

    def has_ended(self, stage: int) -> bool:
        return stage in self._lost

    def log_tail(self, stage: int) -> list[str]:
        """Of what its last machine wrote, once that was saved, which is done before the machine is destroyed."""
        leases = self.state.leases if self.state is not None else ()
        ids = [instance_id for lease in leases if lease.stage == stage for instance_id in lease.ids]
        return log_tail(self._log_path(ids[-1])) if ids else []

    def kill(self, stages: Iterable[int]) -> None:
        """Their machines are destroyed with all the others."""

    def interrupted(self, times: int, signal_name: str) -> None:
        """Twice: destroy at once, without the logs. Three times: stop waiting, and name what was not verified."""
        if self._book is None:
            return
        if times == 2:
            self._view.line(f"{signal_name} again: destroying {self.describe()} without waiting for logs")
            self._book.interrupt(Interrupted(f"interrupted by {signal_name}", signal_number=2))
            self._book.hurry()
        else:
            self._view.line(f"{signal_name} again: not waiting any longer")
            self._book.give_up(f"{signal_name} came {times} times")

    def describe(self) -> str:
        leases = self.state.leases if self.state is not None else ()
        return counted(sum(lease.standing not in FINAL for lease in leases), "rented machine")

    async def end(self, grace_s: float, why: PpError | None) -> None:
        """Save the logs, destroy, verify. Comes back when all is verified, or raises LeasesLeft with what is not."""
        self._ending = True
        for task in self._watching:
            task.cancel()
        try:
            if self._book is not None:
                self._view.waiting(f"giving back {self.describe()}: saving their logs, destroying, verifying")
                left = await self._book.release("the run is over" if why is None else str(why), why)
                if left:
                    raise leases_left(left, url=self._renting.vast_url)
        finally:
            self._view.settle()
            if self._book is not None:
                self._tell_money()
            if self._journal is not None:
                self._journal.close()

    def remember(self, *, formed: bool) -> None:
        """Keep the machines that failed, for the next runs to leave out. `formed`: all stages had joined at some time.

        Where they never did, a container that ended or a node that did not join may well be the fault of what was to
        run there, such as a package that cannot be installed; that is held against no machine.
        """
        failed = {m: why for m, why in self._failed_machines.items() if formed or not why.startswith(_MAYBE_OURS)}
        if self._renting.bad_machines is not None:
            with suppress(OSError):  # it would only have helped the next run
                remember_failures(self._renting.bad_machines, failed, time.time())

    # ---- what the lease book asks

    def _request_for(self, candidate: Candidate) -> CreateRequest:
        """A fresh key for every attempt, so that a machine that was given up is no member when it comes late."""
        key = self._site.renew_node_key(candidate.stage)
        need = next(need for need in self._renting.needs if need.stage == candidate.stage)
        offer = self._offers.get(candidate.offer_id)
        # One to spare: a create call for a port that the machine has not may fail, or never start.
        udp_port = not self._renting.loopback_only and offer is not None and offer.direct_ports > 1
        return create_request(self._terms, need, label=candidate.label, node_key=key, udp_port=udp_port)

    def _running_s(self, offer: Offer) -> float:
        least_s = LeaseTimes().running
        needed_s = running_deadline_s(self._renting.image_gb, offer.inet_down_mbps, least_s=least_s)
        return needed_s / least_s * self._times.running

    async def _save_logs(self, instance: Instance) -> None:
        deadline_s = self._times.logs * _LOGS_SHARE
        read = await read_logs(self._client, [instance], deadline_s=deadline_s)
        try:
            write_logs(read, self._options.log_dir, self._options.redactor)
        except OSError as error:
            self._view.line(f"the logs of instance {instance.id} could not be kept: {error.strerror}")

    def _machine_lost(self, stage: int, reason: str) -> None:
        self._lost.add(stage)
        what = f"stage {stage}: its machine failed: {reason}"
        remedy = f"Run it again, on another machine; its log is in {self._options.log_dir}."
        self._news.node_ended(stage, HostFailed(what, stage=stage, remedy=remedy))

    # ---- helpers

    def _make_terms(self, site: Site) -> NodeTerms:
        options, renting = self._options, self._renting
        return NodeTerms(
            run_id=site.run_id,
            num_stages=options.num_stages,
            seed_addr=site.ticket,
            seed_relay=",".join(renting.relay_urls),
            join_token=site.join_token,
            model=options.model.path,
            context=options.context,
            version=renting.version,
            package=renting.package,
            ship=renting.ship,
            index_url=renting.index_url,
            image=renting.image,
            orphan_timeout_s=renting.orphan_timeout_s,
            vast_url="" if renting.vast_url == DEFAULT_URL else renting.vast_url,
            settings={
                **node_deadlines(options.deadlines),
                "PP_FAR": "0" if renting.loopback_only else "1",
                "PP_RELAY_TOKEN": renting.relay_token,
                "PP_DEVICE": options.device,
                "PP_WORKER_STUB": "1" if options.model.stub else "0",
            },
        )

    async def _watch_book(self, book: LeaseBook) -> None:
        error = await book.failure()
        if not self._ending:
            self._news.source_failed(error)

    async def _watch_money(self) -> None:
        while True:
            self._tell_money()
            await asyncio.sleep(_MONEY_S)

    def _tell_money(self) -> None:
        leases = self.state.leases if self.state is not None else ()
        per_hour = sum(lease.candidate.price_per_hour for lease in leases if lease.standing in LIVE)
        self._view.happened(MoneySpent(round(per_hour, 6), round(self.spent_usd, 6)))

    async def _watch_for_teardown(self, journal: Path) -> None:
        await torn_down(journal, self._held)
        if not self._ending:
            what = "a teardown that was started elsewhere is destroying the machines of this run"
            self._news.source_failed(RunFailed(what, remedy="Leave out its --label to leave runs in progress alone."))

    def _held(self) -> list[str]:
        leases = self.state.leases if self.state is not None else ()
        return [lease.label for lease in leases if lease.standing in LIVE]

    def _price_of_others(self, stage: int) -> float:
        state = self.state
        assert state is not None
        live = [lease.candidate for lease in state.leases if lease.standing in LIVE] + list(state.waiting)
        return sum(candidate.price_per_hour for candidate in live if candidate.stage != stage)

    def _log_path(self, instance_id: int) -> Path:
        return self._options.log_dir / f"instance-{instance_id}.log"


def lease_times(scale: float) -> LeaseTimes:
    """The book's times, shrunk for an emulator; what real processes and people need keeps some real time."""
    if scale >= 1.0:
        return LeaseTimes()
    times = LeaseTimes().scaled(scale)
    return replace(
        times,
        running=max(times.running, 20.0),
        logs=max(times.logs, 10.0),
        release=max(times.release, 60.0),
        hurry=max(times.hurry, 10.0),
    )
