"""What `pp-smoke-run --vastai` does, in order: request, market, account, relays, the user's yes; then the rented run.

Before a machine is rented everything that can be known is looked at. `--plan` stops after the market and needs no key.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ppsmoke import __version__, models
from ppsmoke.bundle.names import OFFERS
from ppsmoke.bundle.recorder import RunRecorder
from ppsmoke.command_steps import RunCommand, begin, empty_result, end, prepare, report
from ppsmoke.dialog import TypedDialog
from ppsmoke.errors import PackageMissing, PpError, UsageError, VastFailed
from ppsmoke.files.models import SCHEME
from ppsmoke.files.wheel import build_wheel
from ppsmoke.interruptible import run_interruptibly
from ppsmoke.models import PathSource, parse_model
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.output import RunOutput
from ppsmoke.preflight import describe_plan, plan_json, stage_memories
from ppsmoke.process_mark import Life
from ppsmoke.relays import check_relay_token, check_relay_url
from ppsmoke.relays.preflight import choose_relays
from ppsmoke.request import Model, open_model
from ppsmoke.signal_loop import ignore_signals_afterwards
from ppsmoke.split_naming import part_names
from ppsmoke.stub_model import is_stub_model
from ppsmoke.terminal import Terminal
from ppsmoke.vast.account_check import AccountCheck, check_account
from ppsmoke.vast.agreement import USUAL_HOURS, Agreement
from ppsmoke.vast.asking import ask, can_ask
from ppsmoke.vast.bad_machines import bad_machines_file, read_bad_machines
from ppsmoke.vast.call_log import CallLog
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.command_options import RentalCommand, is_loopback
from ppsmoke.vast.journal import journal_dir, read_journals
from ppsmoke.vast.lease_owner import life
from ppsmoke.vast.market import StageOffers
from ppsmoke.vast.options import RentalOptions
from ppsmoke.vast.package_index import ask_for_package, check_version
from ppsmoke.vast.place import teardown_words
from ppsmoke.vast.plan_text import describe_offers, offers_json
from ppsmoke.vast.prices import usd
from ppsmoke.vast.records import Instance, Offer
from ppsmoke.vast.run import RentalReport, RentedRun
from ppsmoke.vast.service import SeenInstances, VastService, service_of
from ppsmoke.vast.ship import ship_environment
from ppsmoke.vast.stage_need import StageNeed, stage_needs
from ppsmoke.vast.stage_request import DEFAULT_IMAGE, DEFAULT_IMAGE_GB, is_address, is_pinned
from ppsmoke.vast.teardown import find_leftovers, warning
from ppsmoke.wording import counted


def vastai_command(command: RunCommand, rental: RentalCommand) -> int:
    """The exit status. With --json every end, good or bad, prints one object on stdout."""
    terminal = Terminal(quiet=command.quiet, debug=command.debug)
    run_id = secrets.token_hex(16)
    result = empty_result(command, run_id)
    attempt: _Attempt | None = None
    began = time.monotonic()
    try:
        terms = _Terms.of(rental)
        service = service_of(rental, key_needed=not command.plan)
        options = prepare(command, terminal, run_id, lambda: _open(command, service, terminal))
        prepared = time.monotonic() - began
        attempt = _Attempt(command, rental, service, terms, options, terminal)
        if command.plan:
            print(run_interruptibly(attempt.plan()), flush=True)
            return 0
        with CallLog() as calls:
            result = run_interruptibly(attempt.run(calls))
        result.times.model = prepared
        if attempt.output is not None:
            end(result, attempt.output, terminal)
    except PpError as error:
        if attempt is not None and attempt.result is not None:
            result = attempt.result
        result.error = result.error or error
    rented = attempt.rented if attempt is not None else None
    if rented is not None:
        terminal.settle()
        terminal.line(_rental_line(rented))
    recorder = attempt.recorder if attempt is not None else None
    return report(command, result, terminal, {} if rented is None else {"rental": rented.as_json()}, recorder)


def _rental_line(rented: RentalReport) -> str:
    count = len({instance["id"] for instance in rented.instances if instance["id"] is not None})
    return f"rented  {counted(count, 'machine')}, at most {rented.spent_usd:.4f} USD spent"


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the options about renting come to, checked before anybody is asked."""

    image_gb: float
    relay_urls: tuple[str, ...]
    relay_token: str = field(repr=False)

    @classmethod
    def of(cls, rental: RentalCommand) -> _Terms:
        """Raises UsageError."""
        if not is_pinned(rental.package):
            raise UsageError(
                f"--package {rental.package!r} does not name one version",
                remedy="Give name==version, or the https address of a wheel.",
            )
        check_version(rental.package)
        if rental.image != DEFAULT_IMAGE and rental.image_gb is None:
            raise UsageError(
                "the size of the image is not known, and how long a machine may take to start depends on it",
                remedy="Give its compressed size in GB with --image-gb.",
            )
        rental.check()
        rental.wishes()
        return cls(
            image_gb=DEFAULT_IMAGE_GB if rental.image_gb is None else rental.image_gb,
            relay_urls=tuple(dict.fromkeys(check_relay_url(url) for url in rental.relay_urls)),
            relay_token=check_relay_token(rental.relay_token) if rental.relay_urls else "",
        )


def _open(command: RunCommand, service: VastService, terminal: Terminal) -> Model:
    """The model's header; each machine fetches the weights of its own stage."""
    if is_stub_model(command.model):
        return open_model(command.model, None)
    ref = parse_model(command.model)
    if isinstance(ref.source, PathSource):
        return open_model(ref.id, ref.source.path, nodes_fetch=f"{SCHEME}{ref.source.path.name}")
    if is_loopback(ref.id) and not service.on_this_machine:
        raise UsageError(
            f"{ref.id} is an address of this machine, and a rented one cannot reach it",
            remedy="Name a known model or a public https:// address.",
        )
    terminal.waiting(f"reading the header of {ref.id}")
    try:
        with nullcontext(models.SilentProgress()) as progress:
            path = models.ensure_share(ref, models.header_only, progress=progress)
        return open_model(ref.id, path, nodes_fetch=ref.id)
    finally:
        terminal.settle()


def _own_files(model: str) -> dict[str, Path]:
    """The files of a model that lies on this machine, for the rented ones to read."""
    source = None if is_stub_model(model) else parse_model(model).source
    if not isinstance(source, PathSource):
        return {}
    return {name: source.path.with_name(name) for name in part_names(source.path.name)}


@dataclass(slots=True)
class _Attempt:
    """One invocation, its options settled. `output` and `recorder` are set once the run itself began, `result`
    and `rented` once it is over."""

    command: RunCommand
    rental: RentalCommand
    service: VastService
    terms: _Terms
    options: RunOptions
    terminal: Terminal
    output: RunOutput | None = None
    recorder: RunRecorder | None = None
    rented: RentalReport | None = None
    result: RunResult | None = None

    async def plan(self) -> str:
        """What would be rented, as text or JSON. Raises TooFewOffers, VastFailed."""
        await self._warn_in_passing()
        await self._ask_for_package()
        needs = self._needs()
        async with self.service.without_key().client() as api:
            self.terminal.waiting("asking the market")
            agreement = self._agreement(self._market(api, needs), needs)
            offers = await agreement.choose()
            self.terminal.settle()
        costs = agreement.costs(offers)
        if self.command.as_json:
            return json.dumps({**plan_json(self.options), **offers_json(offers, costs)})
        lines = describe_plan(self.options, free=None)
        return "\n".join([*lines, "", *describe_offers(offers, costs)])

    async def run(self, calls: CallLog) -> RunResult:
        """Raises PpError as long as nothing was rented."""
        needs = self._needs()
        await self._ask_for_package()
        async with self.service.client() as api:
            market = self._market(api, needs)
            self.terminal.waiting("asking the market")
            agreement = self._agreement(market, needs)
            offers = await agreement.choose()
            self.terminal.waiting("asking the account")
            checked = await check_account(api, agreement.costs(offers).total_usd)
            self._show_account(checked)
            await self._warn_of_leftovers(checked.instances, checked.account)
            relays = await self._relays()
            self.terminal.settle()
            if self.command.hold:
                most = self.rental.max_spend
                self.terminal.line(f"held         until you end it, or {usd(most)} USD are spent (--max-spend)")
            offers = await agreement.agreed(offers)
            if self.service.key is not None:
                self.options.redactor.keep(self.service.key.secret)
            options, self.recorder = begin(self.command, self.options, self.terminal)
            calls.write_to(options.log_dir, options.redactor)
            api.on_secret = options.redactor.keep
            considered = {"considered": market.considered(offers)}
            self.recorder.writer.write_json(OFFERS, {**offers_json(offers, agreement.costs(offers)), **considered})
            self.output = RunOutput(self.terminal, stream=not self.command.as_json, recorder=self.recorder)
            terms = self._rental_options(offers, needs, market, relays, checked.account, options.log_dir)
            dialog = None
            if self.command.hold:
                dialog = TypedDialog(self.command, options.model, self.output, costs=lambda: run.rental)
            run = RentedRun(options, terms, self.output, api, hold=dialog)
            try:
                self.result = await run.execute()
                return self.result
            finally:
                self.rented = run.rental
                if self.result is not None and self.result.left_behind is not None:
                    ignore_signals_afterwards()  # until it was named

    # ---- the package

    async def _ask_for_package(self) -> None:
        """Will the machines find what they are to install? Raises UsageError for what surely is not there."""
        rental = self.rental
        given = rental.package if is_address(rental.package) else rental.index_url
        if not self.service.on_this_machine and is_loopback(given):
            raise UsageError(f"{given} is an address of this machine, and a rented one cannot reach it")
        if rental.ship or (self.service.on_this_machine and not given):
            return
        self.terminal.waiting(f"looking for {rental.package}")
        try:
            doubt = await ask_for_package(rental.package, rental.index_url)
        except PackageMissing as missing:
            brings_it = rental.image != DEFAULT_IMAGE  # perhaps
            if not self.command.plan and not brings_it:
                raise
            other_way = ", unless the image brings it" if brings_it else "; --ship has them install what runs here"
            doubt = f"{missing.what}{other_way}"
        finally:
            self.terminal.settle()
        if doubt is not None:
            self.terminal.line(f"warning: {doubt}")

    # ---- the market

    def _needs(self) -> tuple[StageNeed, ...]:
        return stage_needs(stage_memories(self.options), self.terms.image_gb)

    def _market(self, api: VastClient, needs: tuple[StageNeed, ...]) -> StageOffers:
        bad = read_bad_machines(bad_machines_file(os.environ), time.time())
        return StageOffers(api, needs, self.rental.wishes(), bad_machines=bad, strategy=self.rental.strategy)

    def _agreement(self, market: StageOffers, needs: tuple[StageNeed, ...]) -> Agreement:
        budget = self.command.deadlines.budget
        return Agreement(
            market,
            needs,
            max_price=self.rental.max_price,
            max_spend=self.rental.max_spend,
            hours=USUAL_HOURS if budget is None else budget / 3600,
            say=self.terminal.line,
            ask=None if self.rental.yes or not can_ask() else ask,
        )

    # ---- account, leftovers, relays

    def _show_account(self, checked: AccountCheck) -> None:
        source = self.service.key.source if self.service.key is not None else "-"
        credit = "not to be seen with this key" if checked.credit_usd is None else f"{checked.credit_usd:.2f} USD"
        self.terminal.line(f"account      key from {source}, credit {credit}")

    async def _warn_of_leftovers(self, instances: tuple[Instance, ...], account: str | None) -> None:
        directory = journal_dir(os.environ)
        runs = await find_leftovers(SeenInstances(instances), directory, url=self.service.url, account=account)
        said = warning(runs, time.time(), url=self.service.url)
        if said is not None:
            self.terminal.line(f"warning: {said}")

    async def _warn_in_passing(self) -> None:
        """For the plan: it must not fail for what it does not need."""
        if self.service.key is None:
            dead = [r for r in read_journals(journal_dir(os.environ)) if not r.closed and life(r.header) is Life.DEAD]
            if dead:
                self.terminal.line(
                    "warning: an earlier run may have left rented instances: "
                    f"{teardown_words(self.service.url)} tells, with a key"
                )
            return
        try:
            async with self.service.client() as api:
                self.terminal.waiting("looking for what earlier runs left")
                instances = await api.list_instances()
            await self._warn_of_leftovers(tuple(instances), None)
        except VastFailed as error:
            self.terminal.line(f"note: what earlier runs left is not known: {error}")
        finally:
            self.terminal.settle()

    async def _relays(self) -> tuple[str, ...]:
        if self.service.on_this_machine and not self.terms.relay_urls:
            self.terminal.line("relay        none: the machines are processes here")
            return ()
        return await choose_relays(
            self.terms.relay_urls, self.terms.relay_token, self.options, self.terminal, otherwise="nothing was rented"
        )

    def _rental_options(
        self,
        offers: tuple[Offer, ...],
        needs: tuple[StageNeed, ...],
        market: StageOffers,
        relays: tuple[str, ...],
        account: str | None,
        log_dir: Path,
    ) -> RentalOptions:
        rental = self.rental
        files = _own_files(self.command.model)
        if rental.ship:
            wheel = build_wheel(log_dir)
            files[wheel.name] = wheel
        return RentalOptions(
            offers=offers,
            needs=needs,
            market=market,
            package=rental.package,
            ship=ship_environment() if rental.ship else {},
            version=__version__,
            journal_dir=journal_dir(os.environ),
            bad_machines=bad_machines_file(os.environ),
            replacements=rental.replacements,
            image=rental.image,
            image_gb=self.terms.image_gb,
            index_url=rental.index_url,
            relay_urls=relays,
            relay_token=self.terms.relay_token,
            files=files,
            loopback_only=self.service.on_this_machine,
            max_price=rental.max_price,
            max_spend=rental.max_spend,
            vast_url=self.service.url,
            account=account,
            orphan_timeout_s=rental.orphan_timeout,
            time_scale=rental.time_scale,
        )
