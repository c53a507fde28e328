"""What the lease book hears, what it asks for, and what it writes into its journal: frozen records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ppsmoke.errors import PpError
from ppsmoke.vast.lease_records import Candidate


class Verdict(StrEnum):
    """What a row of a listing says about an instance that is awaited."""

    WAIT = "wait"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of a complete listing. `mark`: the label as the instance's environment has it, for rows whose label was
    edited. `fatal`: another machine would fail the same way."""

    instance_id: int
    label: str | None
    mark: str | None = None
    verdict: Verdict = Verdict.WAIT
    reason: str = ""
    fatal: bool = False
    price_per_hour: float | None = None


# ---- journal entries: what happened, in the order it happened


class Kind(StrEnum):
    INTENT = "intent"
    CREATED = "created"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    RUNNING = "running"
    FAILED = "failed"
    DESTROY = "destroy"
    ACCEPTED = "accepted"
    GONE = "gone"
    UNVERIFIED = "unverified"
    RELEASE = "release"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal; what does not apply is None."""

    kind: Kind
    label: str | None = None
    instance_id: int | None = None
    stage: int | None = None
    offer_id: int | None = None
    machine_id: int | None = None
    host_id: int | None = None
    price_per_hour: float | None = None
    reason: str | None = None


# ---- events


@dataclass(frozen=True, slots=True)
class Acquire:
    """The offers to begin with, one a stage."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The intent of this label is on the disk."""

    label: str


@dataclass(frozen=True, slots=True)
class RecordFailed:
    """The journal cannot be written."""

    error: PpError


@dataclass(frozen=True, slots=True)
class Created:
    label: str
    instance_id: int


@dataclass(frozen=True, slots=True)
class CreateRefused:
    """Nothing was made, or, with an id, this was made all the same. `try_another`: another offer may serve."""

    label: str
    try_another: bool
    error: PpError
    instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class CreateUnknown:
    """The answer was lost; an instance may exist or appear."""

    label: str
    reason: str
    instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class OfferFound:
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class NoOffer:
    stage: int
    error: PpError


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete listing of the account that began at `began`."""

    rows: tuple[Seen, ...]
    began: float


@dataclass(frozen=True, slots=True)
class ListFailed:
    """It failed or was incomplete: it proves nothing. `refused`: the key was refused."""

    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class DestroyAnswered:
    """`accepted`: success, or an answer that means the instance is gone."""

    instance_id: int
    accepted: bool
    reason: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class LogsSaved:
    """Saved, or they could not be had."""

    label: str


@dataclass(frozen=True, slots=True)
class ReplaceHost:
    """The run found that this stage's machine does not work (its node never joined, say): replace it."""

    stage: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """End everything. `error` says why when the run did not end well by itself."""

    reason: str
    error: PpError | None = None


@dataclass(frozen=True, slots=True)
class Hurry:
    """The user asked a second time: no logs, a short deadline."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop now; what is not verified is named."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The moment `next_wakeup` named has come."""


Event = (
    Acquire
    | Recorded
    | RecordFailed
    | Created
    | CreateRefused
    | CreateUnknown
    | OfferFound
    | NoOffer
    | Listed
    | ListFailed
    | DestroyAnswered
    | LogsSaved
    | ReplaceHost
    | Release
    | Hurry
    | GiveUp
    | Tick
)

# ---- actions


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the journal. An intent is answered by Recorded or RecordFailed; nothing waits for the others."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Create:
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class FindOffer:
    """An offer for `stage` on none of these machines and offers; `hosts`: of the machines rented now."""

    stage: int
    without_offers: frozenset[int]
    without_machines: frozenset[int]
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class List:
    """List all instances of the account, completely."""


@dataclass(frozen=True, slots=True)
class Destroy:
    instance_id: int


@dataclass(frozen=True, slots=True)
class SaveLogs:
    label: str
    stage: int
    instance_id: int


@dataclass(frozen=True, slots=True)
class Remember:
    """This machine failed: later runs should leave it out."""

    machine_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """Every stage has a running instance: `instance_ids[i]` is stage i's."""

    instance_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """A held instance failed; the run decides between Release and HostFailed."""

    stage: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more will be done; the state says what could not be verified."""


Action = Record | Create | FindOffer | List | Destroy | SaveLogs | Remember | Held | Lost | Done
