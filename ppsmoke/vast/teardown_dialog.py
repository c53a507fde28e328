"""What `--teardown` does: show what earlier runs left, ask, destroy, verify, and say what came of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ppsmoke.errors import EnvironmentFault, UsageError
from ppsmoke.process_mark import Life
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_labels import check_scope, scope_of_id
from ppsmoke.vast.lease_records import LeaseTimes
from ppsmoke.vast.lease_report import leases_left
from ppsmoke.vast.teardown import Choice, LeftRun, TornDown, choose, describe, find_leftovers, tear_down
from ppsmoke.wording import counted, wrap

_NOTHING = TornDown((), ())
_WIDTH = 80


async def destroy_leftovers(
    api: VastApi,
    directory: Path,
    *,
    url: str,
    account: str | None,
    label: str | None,
    everything: bool,
    yes: bool,
    confirm: Callable[[str], Awaitable[bool]] | None,
    say: Callable[[str], None],
    wall: Callable[[], float] = time.time,
    times: LeaseTimes | None = None,
    opened: Callable[[LeaseBook], None] = lambda book: None,
    found: Callable[[Choice], None] = lambda choice: None,
) -> TornDown:
    """`label`, `everything`, `yes` as the options; `confirm` asks on the terminal, None where there is none; `wall` is
    the time that ages are reckoned by; `opened` gets the book, for the signals; `found` what there is, before a
    question.

    Raises UsageError for a label that is too wide, for digits with which several runs' ids begin, or when nobody can be
    asked; LeasesLeft for what could not be verified; VastFailed and EnvironmentFault when it cannot be found out what
    is left.
    """
    if label is not None:
        label = check_scope(label)
    runs = await find_leftovers(api, directory, url=url, account=account, strict=False)
    if label is not None:
        label = scope_of_id(label, (run.scope for run in runs))
    choice = choose(runs, label=label, everything=everything)
    found(choice)
    chosen = list(choice.chosen)
    for run in chosen:
        _show(run, say, wall())
    for run, reason in choice.left_alone:
        _show(run, say, wall())
        say(wrap(f"  left alone: {reason}", _WIDTH))
        may_ask = everything and not yes and run.owner is Life.ALIVE and run.foreign is None
        if may_ask and confirm is not None and await confirm(f"Run {run.scope} is in progress. End it too?"):
            chosen.append(run)
    if not chosen:
        _refuse_unreadable(choice)
        say(f"There is nothing to destroy{f' of {label}' if label is not None else ''}.")
        return _NOTHING
    if not yes and not await _agreed(chosen, confirm):
        say("Nothing was destroyed.")
        return _NOTHING
    torn = await tear_down(api, chosen, times=times, opened=opened)
    for instance_id in torn.gone:
        say(f"instance {instance_id} is destroyed, verified by two listings")
    if torn.unverified:
        raise leases_left(torn.unverified, url=url)
    say("Nothing is left of these runs.")
    _refuse_unreadable(choice)
    return torn


def _refuse_unreadable(choice: Choice) -> None:
    """What could be destroyed was; a journal that nobody can read may tell of more."""
    for run, _ in choice.left_alone:
        if run.record is not None and run.record.unreadable is not None:
            raise EnvironmentFault(
                f"what run {run.scope} left is not known: {run.record.unreadable}",
                remedy=f"Mend it and run this again, or give --label {run.scope}: that destroys what is listed of it.",
            )


def _show(run: LeftRun, say: Callable[[str], None], wall: float) -> None:
    for line in describe(run, wall):
        say(line)


async def _agreed(runs: list[LeftRun], confirm: Callable[[str], Awaitable[bool]] | None) -> bool:
    if confirm is None:
        raise UsageError("there is no terminal to ask on", remedy="Give --yes to destroy what was shown.")
    instances = [instance for run in runs for instance in run.instances]
    price = sum(instance.price_per_hour_usd or 0.0 for instance in instances)
    return await confirm(f"Destroy {counted(len(instances), 'instance')} ({price:.3f} USD an hour)?")
