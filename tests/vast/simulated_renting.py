"""A lease book on a simulated account: virtual time, random latencies, and everything that can go wrong with a call.

Not the emulator (a real server, `tests/vast_emulator`): this one answers the pure machine's actions, hundreds of whole
runs a second, and remembers what the account was left with.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from ppsmoke.errors import CreateFailed, NotEnoughDisk, TooFewOffers
from ppsmoke.vast import lease
from ppsmoke.vast.journal import Dated, JournalRecord, RunHeader, replay
from ppsmoke.vast.lease_events import (
    Acquire,
    Action,
    Create,
    Created,
    CreateRefused,
    CreateUnknown,
    Destroy,
    DestroyAnswered,
    Done,
    Entry,
    Event,
    FindOffer,
    Held,
    Kind,
    List,
    Listed,
    ListFailed,
    LogsSaved,
    Lost,
    NoOffer,
    OfferFound,
    Record,
    Recorded,
    RecordFailed,
    Remember,
    SaveLogs,
    Seen,
    Tick,
    Verdict,
)
from ppsmoke.vast.lease_labels import run_label, stage_label
from ppsmoke.vast.lease_records import BookState, Candidate, LeaseLimits, LeaseTimes

RUN_ID = "0123456789abcdef0123456789abcdef"
TIMES = LeaseTimes()
FOREIGN = Seen(1, "someone's notebook", price_per_hour=0.4)
OTHER_RUN = Seen(2, stage_label("f" * 32, 0, "aa"), price_per_hour=0.4)


@dataclass(slots=True)
class Machine:
    """One instance of the account."""

    instance_id: int
    label: str | None
    mark: str | None
    born: float
    shown_from: float
    price: float
    verdicts: list[tuple[float, Verdict, str, bool]]
    died: float | None = None
    hidden_from: float = float("inf")
    was_missed: bool = False

    def seen(self, now: float) -> Seen | None:
        if not self.shown_from <= now < self.hidden_from:
            return None
        verdict, reason, fatal = Verdict.WAIT, "", False
        for at, a_verdict, a_reason, is_fatal in self.verdicts:
            if self.born + at <= now:
                verdict, reason, fatal = a_verdict, a_reason, is_fatal
        return Seen(self.instance_id, self.label, self.mark, verdict, reason, fatal, self.price)


@dataclass(slots=True)
class Chances:
    """How likely each thing goes wrong; `until`: from then on nothing does, so that an end can be demanded."""

    create_lost: float = 0.2
    create_refused: float = 0.2
    create_fatal: float = 0.02
    refused_but_made: float = 0.3
    effect_late: float = 0.3
    host_bad: float = 0.3
    host_hangs: float = 0.1
    label_lost: float = 0.1
    list_fails: float = 0.2
    row_missed: float = 0.1
    destroy_fails: float = 0.3
    destroy_lies: float = 0.1
    logs_never: float = 0.2
    no_offer: float = 0.02
    until: float = 700.0


CALM = Chances(until=0.0)


@dataclass(slots=True)
class Account:
    """What outlives a process: the machines, and whose calls are still on their way into the service."""

    machines: dict[int, Machine] = field(default_factory=dict)
    ids: count[int] = field(default_factory=lambda: count(100))

    def alive(self, now: float) -> list[Machine]:
        return [x for x in self.machines.values() if x.born <= now and (x.died is None or x.died > now)]

    def to_come(self, now: float) -> list[Machine]:
        return [x for x in self.machines.values() if x.born > now and x.died is None]


class Simulation:
    """One process with its lease book. `journal` and `account` stay when it is dropped."""

    def __init__(
        self,
        rng: random.Random,
        *,
        stages: int = 3,
        chances: Chances | None = None,
        account: Account | None = None,
        limits: LeaseLimits | None = None,
        disk_full_at: float | None = None,
        now: float = 0.0,
    ) -> None:
        self.rng = rng
        self.chances = chances or Chances()
        self.account = account or Account()
        self.now = now
        self.disk_full_at = disk_full_at
        self.stages = stages
        self.state = BookState((run_label(RUN_ID),), stages, TIMES, limits or LeaseLimits())
        self.journal: list[Dated] = []
        self.performed: list[Action] = []
        self.done_at: float | None = None
        self.creates_in_flight = 0
        self._agenda: list[tuple[float, int, Event]] = []
        self._order = count()
        self._nonces = count()

    # ---- driving

    def post(self, delay: float, event: Event) -> None:
        heapq.heappush(self._agenda, (self.now + delay, next(self._order), event))

    def acquire(self) -> None:
        self.post(0.0, Acquire(tuple(self.candidate(stage) for stage in range(self.stages))))

    def candidate(self, stage: int) -> Candidate:
        number = next(self._nonces)
        return Candidate(stage_label(RUN_ID, stage, f"n{number}"), stage, 1000 + number, 50 + number, 7, 0.36)

    def run(self, until: float = float("inf"), steps: int = 5000) -> None:
        """Until the book is done, or the moment `until`. Fails when it goes on for ever or gets stuck."""
        for _ in range(steps):
            if self.done_at is not None:
                return
            wakeup = lease.next_wakeup(self.state)
            first = self._agenda[0][0] if self._agenda else None
            known = [max(self.now, x) for x in (wakeup, first) if x is not None]
            assert known, f"the book is stuck in {self.state.phase} at {self.now:.0f}: {self.state.leases}"
            moment = min(known)
            if moment >= until:
                self.now = until
                return
            self.now = moment
            if first is not None and first <= moment:
                self.hear(heapq.heappop(self._agenda)[2])
            else:
                self.hear(Tick())
        raise AssertionError(f"the book goes on for ever in {self.state.phase} at {self.now:.0f}: {self.state.leases}")

    def hear(self, event: Event) -> None:
        if isinstance(event, Created | CreateRefused | CreateUnknown):
            self.creates_in_flight -= 1
        self.state, actions = lease.step(self.state, event, self.now)
        for action in actions:
            self.performed.append(action)
            self.perform(action)

    # ---- the account's side

    def perform(self, action: Action) -> None:
        match action:
            case Record(entry):
                self._append(entry)
            case Create(candidate):
                self._create(candidate)
            case FindOffer(stage):
                if self._unlucky(self.chances.no_offer):
                    self.post(1.0, NoOffer(stage, TooFewOffers("the market is empty")))
                else:
                    self.post(self.rng.uniform(0.2, 3.0), OfferFound(self.candidate(stage)))
            case List():
                self._list()
            case Destroy(instance_id):
                self._destroy(instance_id)
            case SaveLogs(label):
                if not self._unlucky(self.chances.logs_never):
                    self.post(self.rng.uniform(1.0, 50.0), LogsSaved(label))
            case Done():
                self.done_at = self.now
            case Held() | Lost() | Remember():
                pass

    def _append(self, entry: Entry) -> None:
        full = self.disk_full_at is not None and self.now >= self.disk_full_at
        if not full:
            self.journal.append(Dated(self.now, entry))
        if entry.kind is Kind.INTENT:
            assert entry.label is not None
            self.post(0.0, RecordFailed(NotEnoughDisk("the disk is full")) if full else Recorded(entry.label))

    def _create(self, candidate: Candidate) -> None:
        intents = [x.entry.label for x in self.journal if x.entry.kind is Kind.INTENT]
        assert candidate.label in intents, "a create without its intent on the disk"
        assert self.creates_in_flight == 0, "two creates at once"
        self.creates_in_flight += 1
        label, answer = candidate.label, self.rng.uniform(0.5, 8.0)
        if self._unlucky(self.chances.create_lost):
            self.post(self.rng.uniform(5.0, 120.0), CreateUnknown(label, "no answer"))
            if self.rng.random() < 0.6:
                late = self.rng.uniform(5.0, 28.0) if self._unlucky(self.chances.effect_late) else 0.0
                self._make(candidate, late)
            return
        if self._unlucky(self.chances.create_refused):
            made = self._make(candidate, 0.0) if self._unlucky(self.chances.refused_but_made) else None
            another = not self._unlucky(self.chances.create_fatal)
            self.post(answer, CreateRefused(label, another, CreateFailed("no_such_ask"), made))
            return
        self.post(answer, Created(label, self._make(candidate, 0.0)))

    def _make(self, candidate: Candidate, late: float) -> int:
        instance_id = next(self.account.ids)
        lost = self._unlucky(self.chances.label_lost)
        born = self.now + late
        machine = Machine(
            instance_id,
            None if lost else candidate.label,
            candidate.label,
            born,
            born + self.rng.choice([0.0, self.rng.uniform(0.0, 28.0)]),
            candidate.price_per_hour,
            self._fate(),
        )
        self.account.machines[instance_id] = machine
        return instance_id

    def _fate(self) -> list[tuple[float, Verdict, str, bool]]:
        if self._unlucky(self.chances.host_hangs):
            return []
        ready = self.rng.uniform(10.0, 90.0)
        if self._unlucky(self.chances.host_bad):
            fatal = self._unlucky(0.1)
            return [(ready, Verdict.FAILED, "no space left on device", fatal)]
        return [(ready, Verdict.READY, "", False)]

    def _list(self) -> None:
        began = self.now
        if self._unlucky(self.chances.list_fails):
            self.post(self.rng.uniform(0.5, 20.0), ListFailed("502"))
            return
        read, answer = self.rng.uniform(0.0, 1.0), self.rng.uniform(1.0, 5.0)
        rows = [FOREIGN, OTHER_RUN]
        for machine in self.account.machines.values():
            # A replica that lags: complete by its own count, and yet one row short. Not twice in a row.
            machine.was_missed = not machine.was_missed and self._unlucky(self.chances.row_missed)
            row = machine.seen(began + read)
            if row is not None and not machine.was_missed:
                rows.append(row)
        self.post(answer, Listed(tuple(rows), began))

    def _destroy(self, instance_id: int) -> None:
        assert instance_id in self.account.machines, f"instance {instance_id} is not of this run"
        machine = self.account.machines[instance_id]
        answer = self.rng.uniform(0.5, 5.0)
        if self._unlucky(self.chances.destroy_fails):
            if self.rng.random() < 0.5:
                self._end(machine, answer)
            self.post(self.rng.uniform(0.5, 60.0), DestroyAnswered(instance_id, False, "500"))
            return
        # Accepted and not done; one that no listing shows yet could not be told from a destroyed one.
        if self.now < machine.shown_from or not self._unlucky(self.chances.destroy_lies):
            self._end(machine, answer)
        self.post(answer, DestroyAnswered(instance_id, True))

    def _end(self, machine: Machine, delay: float) -> None:
        if machine.died is None:
            machine.died = self.now + delay
            machine.hidden_from = machine.died + self.rng.uniform(0.0, 10.0)

    def _unlucky(self, chance: float) -> bool:
        return self.now < self.chances.until and self.rng.random() < chance


def teardown_after_kill(dead: Simulation, later: float) -> Simulation:
    """Another process, `later` seconds after, with nothing but the dead one's journal and the account."""
    now = dead.now + later
    after = Simulation(dead.rng, stages=dead.stages, chances=CALM, account=dead.account, now=now)
    header = RunHeader(RUN_ID, 1, 0.0, "here", "http://127.0.0.1")
    record = JournalRecord(Path(f"{RUN_ID}.jsonl"), header, tuple(dead.journal))
    leases = replay(record, now=now, wall=now, times=TIMES)
    after.state = lease.in_release(replace(after.state, leases=leases), now)
    after.journal = dead.journal
    after.hear(Tick())
    return after
