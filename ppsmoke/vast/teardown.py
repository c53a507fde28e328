"""Finding and destroying what earlier runs left, by their journals and this tool's labels: nobody else's instances.

A run whose process lives is left alone, and so is one that another machine may be running, until it is asked for by its
label (or, of the second kind, with everything). What is found is ended by the same lease book that ends a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ppsmoke.errors import EnvironmentFault
from ppsmoke.figures import duration
from ppsmoke.process_mark import Life
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.journal import Journal, JournalRecord, read_journal, read_journals, replay
from ppsmoke.vast.lease import in_release
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_labels import in_scope, is_ours, run_label_of, stage_of
from ppsmoke.vast.lease_owner import life
from ppsmoke.vast.lease_records import BookState, Candidate, Lease, LeaseTimes, Rented, Standing
from ppsmoke.vast.lease_report import Unverified
from ppsmoke.vast.place import teardown_words
from ppsmoke.vast.prices import spent_usd
from ppsmoke.vast.records import Instance
from ppsmoke.wording import columns, counted

_NEVER_MIND_S = 3600.0
_HEAD = ("instance", "label", "state", "age", "USD/h", "so far")


class Listing(Protocol):
    """The one call that finding takes."""

    async def list_instances(self) -> list[Instance]: ...


@dataclass(frozen=True, slots=True)
class LeftRun:
    """What is left of one run.

    `scope`: what its labels begin with. `instances`: listed now. `record`: its journal, None where there is none here.
    `owner`: its process; UNKNOWN without a journal. `foreign`: why it cannot be ended with this key, None if it can.
    """

    scope: str
    instances: tuple[Instance, ...]
    record: JournalRecord | None
    owner: Life
    foreign: str | None = None

    def only(self, label: str) -> LeftRun:
        """The part of it under a label."""
        mine = tuple(x for x in self.instances if in_scope(label_of(x), label))
        return replace(self, scope=label, instances=mine)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a teardown would end, and what it leaves alone, with the reason in words."""

    chosen: tuple[LeftRun, ...]
    left_alone: tuple[tuple[LeftRun, str], ...]


@dataclass(frozen=True, slots=True)
class TornDown:
    """`gone`: instances verified as destroyed, by this teardown or before it."""

    gone: tuple[int, ...]
    unverified: tuple[Unverified, ...]


async def find_leftovers(
    api: Listing, directory: Path, *, url: str, account: str | None, strict: bool = True
) -> list[LeftRun]:
    """All runs of this tool that a journal or the account says may have left something, oldest journal first.

    One complete listing. `url`, `account`: whose instances the key shows; a journal of another account proves nothing
    about these. `strict`: a journal that cannot be read raises EnvironmentFault. Raises VastFailed.
    """
    records = {record.scope: record for record in read_journals(directory, strict=strict)}
    groups: dict[str, list[Instance]] = {scope: [] for scope, record in records.items() if not record.closed}
    of_id = {entry.entry.instance_id: scope for scope, record in records.items() for entry in record.entries}
    for instance in await api.list_instances():
        scope = run_label_of(label_of(instance)) or of_id.get(instance.id)
        if scope is not None:
            groups.setdefault(scope, []).append(instance)
    return [_left_run(scope, mine, records.get(scope), url, account) for scope, mine in groups.items()]


def choose(runs: Iterable[LeftRun], *, label: str | None, everything: bool) -> Choice:
    """What `--teardown` means: without a label what dead runs of this machine left, with `everything` also what no
    process here accounts for, with a label just that. `label` as `check_scope` gives it."""
    chosen: list[LeftRun] = []
    alone: list[tuple[LeftRun, str]] = []
    for run in runs:
        if label is not None and not in_scope(label, run.scope):
            continue
        mine = run if label is None else run.only(label)
        if run.foreign is not None:
            alone.append((mine, run.foreign))
        elif label is not None or run.owner is Life.DEAD:
            chosen.append(mine)
        elif run.owner is Life.ALIVE:
            pid = run.record.header.pid if run.record is not None and run.record.header is not None else "?"
            alone.append((mine, f"it is in progress, process {pid}; --label {run.scope} ends it all the same"))
        elif everything:
            chosen.append(mine)
        else:
            where = f"it was {run.owner.value}"
            if run.record is None:
                where = "no journal here tells of it"
            elif run.record.unreadable is not None:
                where = str(run.record.unreadable)
            elif run.record.header is None:
                where = f"its journal {run.record.path} is damaged"
            alone.append((mine, f"{where} and it may be in progress; --all or --label {run.scope} ends it"))
    return Choice(tuple(chosen), tuple(alone))


async def tear_down(
    api: VastApi,
    runs: Sequence[LeftRun],
    *,
    times: LeaseTimes | None = None,
    news: Callable[[Entry], None] = lambda entry: None,
    wall: Callable[[], float] = time.time,
    opened: Callable[[LeaseBook], None] = lambda book: None,
) -> TornDown:
    """Destroy and verify. `opened` gets the book, whose `hurry` and `give_up` a second and a third Ctrl-C may call.

    It takes a minute and more when a run was killed while it rented: its instance may show up late.
    """
    times = times or LeaseTimes()
    journals = _Journals(runs)
    now = asyncio.get_running_loop().time()
    leases = [lease for run in runs for lease in _leases(run, now, wall(), times)]
    state = BookState(tuple(run.scope for run in runs), 0, times, leases=tuple(leases))
    try:
        book = LeaseBook(api, journals, in_release(state, now), None, news=news)
        opened(book)
        left = await book.release("teardown")
        journals.close_what_is_gone(wall())
    finally:
        journals.close()
    gone = {x for lease in book.state.leases if lease.standing is Standing.GONE for x in lease.ids}
    return TornDown(tuple(sorted(gone)), left)


def describe(run: LeftRun, wall: float) -> list[str]:
    """For the user: a line for the run, one for each instance, one for each create that was not answered."""
    known = run.record is not None and run.record.header is not None
    lines = [f"run {run.scope}: {run.owner.value if known else 'not known here'}"]
    if run.instances:
        rows = [_HEAD, *(_row(instance, wall) for instance in run.instances)]
        lines += [f"  {line}" for line in columns(rows, right=lambda column: column > 2)]
    lines += [f"  {label}: an instance may still appear" for label in _unanswered(run, wall)]
    return lines


def _row(instance: Instance, wall: float) -> tuple[str, ...]:
    age, cost, price = instance.age_s(wall), spent_usd(instance, wall), instance.price_per_hour_usd
    return (
        str(instance.id),
        label_of(instance),
        instance.actual_status or "being set up",
        duration(age) if age is not None else "-",
        f"{price:.3f}" if price is not None else "-",
        f"{cost:.2f}" if cost is not None else "-",
    )


def warning(runs: Iterable[LeftRun], wall: float, *, url: str) -> str | None:
    """For the start of a run: what earlier ones left at `url`, in a sentence; None when there is nothing to say."""
    left = [run for run in runs if run.owner is not Life.ALIVE and run.foreign is None]
    instances = [instance for run in left for instance in run.instances]
    unanswered = [label for run in left for label in _unanswered(run, wall)]
    if not instances and not unanswered:
        return None
    price = sum(instance.price_per_hour_usd or 0.0 for instance in instances)
    what = counted(len(instances) + len(unanswered), "rented instance")
    known = all(run.owner is Life.DEAD for run in left if run.instances)
    more = "" if known else " (some may belong to a run on another machine)"
    return f"earlier runs left {what}, {price:.2f} USD an hour{more}: {teardown_words(url)} shows and destroys them"


def label_of(instance: Instance) -> str:
    """The label of ours that it carries, or carried when it was made; else whatever it carries now."""
    return next((x for x in (instance.label, instance.first_label) if is_ours(x)), instance.label)


# ---- helpers


def _left_run(
    scope: str, instances: Sequence[Instance], record: JournalRecord | None, url: str, account: str | None
) -> LeftRun:
    header = record.header if record is not None else None
    foreign = None
    if header is not None and not instances:  # what is listed with this key is this account's, whatever was written
        if header.url != url:
            foreign = f"it was rented at {header.url}"
        elif header.account is not None and account is not None and header.account != account:
            foreign = f"it was rented by account {header.account}, and this key is of account {account}"
    owner = Life.UNKNOWN if record is None else life(header)
    return LeftRun(scope, tuple(instances), record, owner, foreign)


def _leases(run: LeftRun, now: float, wall: float, times: LeaseTimes) -> list[Lease]:
    """From the journal as far as it tells, and from the listing."""
    told = replay(run.record, now=now, wall=wall, times=times) if run.record is not None else ()
    leases = {lease.label: lease for lease in told if in_scope(lease.label, run.scope)}
    of_id = {x: lease.label for lease in leases.values() for x in lease.ids}
    for instance in run.instances:
        label = of_id.get(instance.id) or label_of(instance)
        known = leases.get(label) or _found(label, instance, now)
        price = instance.price_per_hour_usd or known.candidate.price_per_hour
        rented = known.rented if instance.id in known.ids else (*known.rented, Rented(instance.id))
        candidate = replace(known.candidate, price_per_hour=price)
        leases[label] = replace(known, candidate=candidate, rented=rented, unresolved_at=None, counts_from=now)
    return list(leases.values())


def _found(label: str, instance: Instance, now: float) -> Lease:
    stage = stage_of(label)
    candidate = Candidate(label, -1 if stage is None else stage, 0, instance.machine_id, instance.host_id, 0.0)
    return Lease(candidate, Standing.ENDING, now, made_at=now, logs_done=True)


def _unanswered(run: LeftRun, wall: float) -> list[str]:
    """Labels of creates whose answer the journal does not have and that are young enough to matter."""
    if run.record is None:
        return []
    times = LeaseTimes()
    leases = replay(run.record, now=wall, wall=wall, times=times)
    listed = {label_of(instance) for instance in run.instances}
    late = times.settle + _NEVER_MIND_S
    return [
        x.label
        for x in leases
        if x.unresolved_at is not None and x.unresolved_at + late > wall and x.label not in listed and not x.ids
    ]


class _Journals:
    """The journals of several runs as one: each entry goes to its own run's, if that can be written."""

    def __init__(self, runs: Iterable[LeftRun]) -> None:
        self._open: dict[str, Journal] = {}
        self._paths: list[tuple[str, Path]] = []
        for run in runs:
            if run.record is None:
                continue
            self._paths.append((run.record.scope, run.record.path))
            with suppress(EnvironmentFault):
                self._open[run.record.scope] = Journal.reopen(run.record.path)

    def append(self, entry: Entry, *, at: float) -> None:
        journal = self._open.get(run_label_of(entry.label or "") or "")
        if journal is not None:
            journal.append(entry, at=at)

    def close_what_is_gone(self, at: float) -> None:
        """A run of which nothing may exist any more is closed, whatever became of the others."""
        for scope, path in self._paths:
            if scope not in self._open:
                continue
            with suppress(EnvironmentFault):
                record = read_journal(path)
                if record is None or replay(record, now=at, wall=at, times=LeaseTimes()):
                    continue
                self._open[scope].append(Entry(Kind.CLOSED, reason="teardown"), at=at)

    def close(self) -> None:
        for journal in self._open.values():
            journal.close()
