"""What the lease book keeps, hears and asks for: frozen records, no behaviour beyond arithmetic.

Times are seconds of one clock that the driver hands in; money is USD.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum

from ppsmoke.errors import PpError


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, all of them; `scaled` shrinks them alike.

    poll: between listings while instances start. held_poll: while the chain runs. verify: while an outcome or an end
    is to be verified. settle: how late an instance may show up in a listing after a create whose answer was lost.
    sent: how long after its intent a create may still have gone out, from a process of which nothing else is known.
    running: from an instance's creation to `running`. logs: for saving an instance's logs before it is destroyed.
    retry, retry_most: first and longest wait before a destroy is asked again. again: a destroy that was accepted and
    has not taken effect is asked again. release: for the whole release, then what is not verified is named. hurry: the
    same, once the user has asked twice.
    """

    poll: float = 10.0
    held_poll: float = 30.0
    verify: float = 4.0
    settle: float = 60.0
    sent: float = 200.0
    running: float = 300.0
    logs: float = 60.0
    retry: float = 3.0
    retry_most: float = 30.0
    again: float = 30.0
    release: float = 900.0
    hurry: float = 45.0

    def scaled(self, factor: float) -> LeaseTimes:
        return LeaseTimes(*(getattr(self, field.name) * factor for field in fields(self)))


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """replacements: hosts that failed, per stage. refused: offers that were gone when asked for, per stage.
    max_spend: USD for the run, None for no bound. price_slack: how far an instance's price per hour may lie above that
    of its offer, as a factor. time_scale: seconds of ours that are one of the service's, which money is counted in; see
    `LeaseTimes.scaled`. missing: complete listings in a row without an instance before it counts as lost.
    refusals: answers in a row that refuse the key before a release gives up."""

    replacements: int = 3
    refused: int = 6
    max_spend: float | None = None
    price_slack: float = 1.25
    time_scale: float = 1.0
    missing: int = 3
    refusals: int = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer to rent, with the label its create call is to carry. `running_s`: how long it may take to `running`, if
    not the book's time."""

    label: str
    stage: int
    offer_id: int
    machine_id: int | None
    host_id: int | None
    price_per_hour: float
    running_s: float | None = None


class Standing(StrEnum):
    """Of one lease. The last two are final; whatever a listing shows afterwards brings a lease back to ENDING."""

    PLANNED = "planned"  # the intent is being recorded; nothing was sent
    CREATING = "creating"  # the create call is under way
    UNSURE = "unsure"  # its answer was lost
    MADE = "made"  # the instance exists
    RUNNING = "running"  # a listing showed it running
    ENDING = "ending"  # to be destroyed, or to be verified as never made
    GONE = "gone"  # two complete listings in a row did not show it after its end
    UNVERIFIED = "unverified"  # given up: to be named to the user


FINAL = frozenset({Standing.GONE, Standing.UNVERIFIED})
LIVE = frozenset({Standing.PLANNED, Standing.CREATING, Standing.UNSURE, Standing.MADE, Standing.RUNNING})


@dataclass(frozen=True, slots=True)
class Rented:
    """One instance id of a lease and how far its destroy call is."""

    instance_id: int
    asked: bool = False
    asking: bool = False
    accepted_at: float | None = None
    tries: int = 0
    next_try: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """One create attempt, from before its call to its verified end.

    `unresolved_at`: when the answer of its create was lost, None when it was not. `counts_from`: a listing that began
    earlier is no proof of absence. `absent`: complete listings in a row that did not show it. `logs_until`: logs are
    being saved until then at most; `logs_done`: nothing is left to save. `refused`: its offer was gone. `reason`: why
    it failed or could not be verified.
    """

    candidate: Candidate
    standing: Standing
    since: float
    rented: tuple[Rented, ...] = ()
    made_at: float | None = None
    unresolved_at: float | None = None
    counts_from: float = 0.0
    absent: int = 0
    logs_until: float | None = None
    logs_done: bool = False
    refused: bool = False
    reason: str = ""

    @property
    def label(self) -> str:
        return self.candidate.label

    @property
    def stage(self) -> int:
        return self.candidate.stage

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(rented.instance_id for rented in self.rented)

    @property
    def all_accepted(self) -> bool:
        """Every id it is known to have was accepted for destruction; true without ids."""
        return all(rented.accepted_at is not None for rented in self.rented)

    @property
    def all_asked(self) -> bool:
        """Every id it is known to have was asked to be destroyed, whatever the answer."""
        return all(rented.asked for rented in self.rented)


class Phase(StrEnum):
    IDLE = "idle"
    ACQUIRING = "acquiring"
    HELD = "held"
    RELEASING = "releasing"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class BookState:
    """`scopes`: labels under these that no lease explains are ours too, and are destroyed when the book is released.
    `waiting`: candidates whose turn has not come. `searching`: stages for which an offer is being looked for.
    `blind_since`, `blind_reason`: since when every listing failed, and how the last one did."""

    scopes: tuple[str, ...]
    num_stages: int
    times: LeaseTimes = LeaseTimes()
    limits: LeaseLimits = LeaseLimits()
    phase: Phase = Phase.IDLE
    leases: tuple[Lease, ...] = ()
    waiting: tuple[Candidate, ...] = ()
    searching: frozenset[int] = frozenset()
    listing: bool = False
    last_list: float | None = None
    blind_since: float | None = None
    blind_reason: str = ""
    hurried: bool = False
    give_up_at: float | None = None
    refusals: int = 0
    error: PpError | None = None

    @property
    def unverified(self) -> tuple[Lease, ...]:
        return tuple(lease for lease in self.leases if lease.standing is Standing.UNVERIFIED)

    def of_stage(self, stage: int) -> Lease | None:
        """The lease that serves `stage` now, or is about to."""
        return next((x for x in self.leases if x.stage == stage and x.standing in LIVE), None)

    def with_lease(self, changed: Lease) -> BookState:
        """The state with the lease of the same label replaced."""
        return replace(self, leases=tuple(changed if x.label == changed.label else x for x in self.leases))


def spent(state: BookState, now: float) -> float:
    """USD of all leases until `now`: price per hour times life on the service's clock, the disk of a starting instance
    taken at full price."""
    lives = sum(_life(x, now) * x.candidate.price_per_hour * max(1, len(x.rented)) for x in state.leases)
    return lives / state.limits.time_scale / 3600


def _life(lease: Lease, now: float) -> float:
    if lease.made_at is None:
        return 0.0
    if not lease.rented and lease.standing not in LIVE:  # looked for, and not found: it was most likely never made
        return max(0.0, lease.since - lease.made_at)
    ends = [now if rented.accepted_at is None else rented.accepted_at for rented in lease.rented]
    return max(0.0, max(ends, default=now) - lease.made_at)
