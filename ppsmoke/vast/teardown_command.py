"""What `pp-smoke-run --teardown` does: key, account, then the dialog; signals hurry it, and cannot make it forget."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ppsmoke.errors import LeasesLeft, PpError, VastKeyRejected, VastRequestRefused
from ppsmoke.interruptible import run_interruptibly
from ppsmoke.orchestrator.result import error_json
from ppsmoke.signal_loop import ignore_signals_afterwards
from ppsmoke.signals import ending_signals, exit_on_signals, ignore_signals, interruption
from ppsmoke.terminal import Terminal
from ppsmoke.vast.asking import ask, can_ask
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.command_options import RentalCommand
from ppsmoke.vast.journal import journal_dir
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_labels import check_scope, stage_of
from ppsmoke.vast.lease_records import LeaseTimes
from ppsmoke.vast.prices import spent_usd
from ppsmoke.vast.service import VastService, service_of
from ppsmoke.vast.teardown import Choice, LeftRun, TornDown, label_of
from ppsmoke.vast.teardown_dialog import destroy_leftovers


def teardown_command(
    rental: RentalCommand, *, label: str | None, everything: bool, as_json: bool, quiet: bool, debug: bool
) -> int:
    """The exit status. What is found and done is said on stdout; with --json on stderr, and one object on stdout."""
    terminal = Terminal(quiet=quiet, debug=debug)
    work = _Teardown(terminal, say=terminal.line if as_json or quiet else _print)
    error: PpError | None = None
    try:
        if label is not None:
            check_scope(label)
        service = service_of(rental, key_needed=True)
        run_interruptibly(work.run(service, label=label, everything=everything, yes=rental.yes))
        if work.signals:
            error = interruption(work.signals[0], "teardown")
    except PpError as failure:
        error = failure
    if work.left is not None:
        ignore_signals()
    else:
        exit_on_signals()
    if error is not None:
        terminal.error(error)
    status = 0 if error is None else error.exit_status
    exit_on_signals(status)
    if as_json:
        body = work.as_json() | {"exit_status": status}
        if error is not None:
            body["error"] = error_json(error)
        with suppress(BrokenPipeError):
            print(json.dumps(body), flush=True)
    return status


def _print(line: str) -> None:
    print(line, flush=True)


@dataclass(slots=True)
class _Teardown:
    terminal: Terminal
    say: Callable[[str], None]
    signals: list[int] = field(default_factory=list)
    found: Choice | None = None
    torn: TornDown | None = None
    book: LeaseBook | None = None
    left: LeasesLeft | None = None

    async def run(self, service: VastService, *, label: str | None, everything: bool, yes: bool) -> None:
        """Raises as `destroy_leftovers` does."""
        try:
            await self._destroy(service, label=label, everything=everything, yes=yes)
        except LeasesLeft as left:
            self.left = left
            ignore_signals_afterwards()  # until it was named
            raise

    async def _destroy(self, service: VastService, *, label: str | None, everything: bool, yes: bool) -> None:
        async with service.client() as api:
            self.terminal.waiting("looking for what earlier runs left")
            self.torn = await destroy_leftovers(
                api,
                journal_dir(os.environ),
                url=service.url,
                account=await _account(api),
                label=label,
                everything=everything,
                yes=yes,
                confirm=self._ask if can_ask() else None,
                say=self._say,
                times=LeaseTimes().scaled(service.time_scale),
                opened=self._opened,
                found=self._found,
            )
        self.terminal.settle()

    def as_json(self) -> dict[str, Any]:
        """`runs`: what was found; `destroyed`: instance ids."""
        now = time.time()
        runs: list[dict[str, Any]] = []
        if self.found is not None:
            runs += [_run_json(run, None, now) for run in self.found.chosen]
            runs += [_run_json(run, reason, now) for run, reason in self.found.left_alone]
        return {"runs": runs, "destroyed": list(self.torn.gone) if self.torn is not None else []}

    def _say(self, line: str) -> None:
        self.terminal.settle()
        self.say(line)

    async def _ask(self, question: str) -> bool:
        self.terminal.settle()
        return await ask(question)

    def _found(self, choice: Choice) -> None:
        self.found = choice

    def _opened(self, book: LeaseBook) -> None:
        """From here on a signal must not cut the destruction off."""
        self.book = book
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        self.terminal.waiting("destroying, and listing until nothing is left")

    def _on_signal(self, number: int) -> None:
        self.signals.append(number)
        name, book = signal.Signals(number).name, self.book
        self.terminal.settle()
        match len(self.signals):
            case 1:
                self.terminal.line(f"{name}: what was begun is brought to its end; again: with less patience")
            case 2:
                self.terminal.line(f"{name} again: at most a minute more; once more: what is left is named at once")
                if book is not None:
                    book.hurry()
            case _:
                if book is not None:
                    book.give_up("it was interrupted")


async def _account(api: VastClient) -> str | None:
    try:
        number = (await api.account()).id
    except (VastKeyRejected, VastRequestRefused):  # a small key may list and not see the account
        return None
    return None if number is None else str(number)


def _run_json(run: LeftRun, left_alone: str | None, now: float) -> dict[str, Any]:
    instances = [
        {
            "id": instance.id,
            "label": label_of(instance),
            "stage": stage_of(label_of(instance)),
            "status": instance.actual_status,
            "age_s": _rounded(instance.age_s(now), 0),
            "price_per_hour_usd": _rounded(instance.price_per_hour_usd, 4),
            "spent_usd": _rounded(spent_usd(instance, now), 4),
        }
        for instance in run.instances
    ]
    return {"label": run.scope, "owner": run.owner.value, "left_alone": left_alone, "instances": instances}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
