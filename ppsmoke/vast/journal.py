"""The lease book's journal: one file a run, one JSON line for each intent and each result, on the disk before going on.

What a run rented must be found again after its process was killed at any moment. So a line counts once it was written
whole and synced; a reader passes over lines that were not. The API key is never in it: `account` tells whose it was.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from ppsmoke.durable import sync_folder
from ppsmoke.errors import EnvironmentFault, NotEnoughDisk
from ppsmoke.logs import state_dir
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_labels import run_label
from ppsmoke.vast.lease_records import Candidate, Lease, LeaseTimes, Rented, Standing

KEPT_CLOSED = 50
_SUFFIX = ".jsonl"
_RUN = "run"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def journal_dir(environ: Mapping[str, str]) -> Path:
    """Where the journals of this user's runs lie."""
    return state_dir(environ) / "leases"


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The first line. `process_started`, `boot`: so that another process with the same `pid` is not taken for this one
    (see lease_owner); `host`: where that pid means something. `url`, `account`: whose instances these are."""

    run_id: str
    pid: int
    process_started: float
    host: str
    url: str
    account: str | None = None
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Dated:
    """An entry and when it was written, in seconds since the epoch."""

    at: float
    entry: Entry


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """What a journal file tells. `header` None: its first line never reached the disk whole, so nothing was rented.
    `unreadable`: why the file could not be read at all."""

    path: Path
    header: RunHeader | None
    entries: tuple[Dated, ...]
    unreadable: EnvironmentFault | None = None

    @property
    def run_id(self) -> str:
        return self.path.name.removesuffix(_SUFFIX)

    @property
    def scope(self) -> str:
        """What all labels of the run begin with."""
        return run_label(self.run_id)

    @property
    def closed(self) -> bool:
        """Everything was verified as gone, or nothing was ever asked for."""
        closed = self.unreadable is None
        for dated in self.entries:
            if dated.entry.kind in (Kind.INTENT, Kind.CREATED, Kind.CLOSED):
                closed = dated.entry.kind is Kind.CLOSED
        return closed


class Journal:
    """Appends to one run's file. After an append that failed it goes on with the next line."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file = file
        self._torn = False

    @classmethod
    def begin(cls, directory: Path, header: RunHeader, *, at: float) -> Self:
        """A new journal with its header on the disk. Raises NotEnoughDisk and EnvironmentFault."""
        path = directory / f"{header.run_id}{_SUFFIX}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _prune(directory)
            journal = cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600))
        except OSError as error:
            raise _failure(path, error) from error
        try:
            journal._write({"at": at, "kind": _RUN, "version": 1, **asdict(header)})
            sync_folder(directory)
        except OSError as error:
            journal.close()
            with suppress(OSError):
                path.unlink()
            raise _failure(path, error) from error
        return journal

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """To go on in an old journal, as a teardown does. Raises EnvironmentFault."""
        try:
            journal = cls(path, os.open(path, os.O_RDWR | os.O_APPEND))
        except OSError as error:
            raise _failure(path, error) from error
        size = os.fstat(journal._file).st_size
        journal._torn = size > 0 and os.pread(journal._file, 1, size - 1) != b"\n"
        return journal

    def append(self, entry: Entry, *, at: float) -> None:
        """On the disk when it returns. Raises NotEnoughDisk and EnvironmentFault."""
        told = {name: value for name, value in asdict(entry).items() if value is not None}
        try:
            self._write({"at": round(at, 3), **told})
        except OSError as error:
            raise _failure(self.path, error) from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if self._torn:  # what an earlier append left of its line must not swallow this one
            data = b"\n" + data
        self._torn = True
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)
        self._torn = False


def read_journals(directory: Path, *, strict: bool = True) -> list[JournalRecord]:
    """All journals there, oldest first. An unreadable one may tell of something rented: with `strict` it raises
    EnvironmentFault, else it is among them all the same."""
    try:
        paths = [path for path in directory.iterdir() if path.name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _failure(directory, error) from error
    records = [read_journal(path) if strict else _read_if_possible(path) for path in paths]
    return sorted((x for x in records if x is not None), key=lambda x: x.entries[0].at if x.entries else 0.0)


def read_journal(path: Path) -> JournalRecord | None:
    """One journal; None when another process has removed it meanwhile."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failure(path, error) from error
    header: RunHeader | None = None
    entries: list[Dated] = []
    for line in data.split(b"\n"):
        told = _object(line)
        if told.get("kind") == _RUN:
            header = header or _header(told)
        elif (dated := _dated(told)) is not None:
            entries.append(dated)
    return JournalRecord(path, header, tuple(entries))


def _read_if_possible(path: Path) -> JournalRecord | None:
    try:
        return read_journal(path)
    except EnvironmentFault as error:
        return JournalRecord(path, None, (), error)


def replay(record: JournalRecord, *, now: float, wall: float, times: LeaseTimes) -> tuple[Lease, ...]:
    """What may still exist of a run whose process is gone: every attempt that was not verified as gone, to be ended.

    `now`: the clock of the machine that will end them; `wall`: the same moment in seconds since the epoch. A create
    whose answer is not in the journal may have been sent until `times.sent` seconds after its intent.
    """
    leases: dict[str, Lease] = {}
    for dated in record.entries:
        entry, when = dated.entry, now - max(0.0, wall - dated.at)
        if entry.label is None:
            continue
        if entry.kind is Kind.INTENT:
            leases[entry.label] = _intended(entry, when, min(now, when + times.sent))
            continue
        lease = leases.get(entry.label) or _intended(entry, when, when)
        leases[entry.label] = _after(lease, entry, when)
    ended = []
    for lease in leases.values():
        if lease.standing is Standing.GONE:
            continue
        counts_from = now if lease.unresolved_at is None else max(now, lease.unresolved_at + times.settle)
        ended.append(replace(lease, standing=Standing.ENDING, since=now, counts_from=counts_from))
    return tuple(ended)


def _intended(entry: Entry, when: float, sent: float) -> Lease:
    assert entry.label is not None
    candidate = Candidate(
        label=entry.label,
        stage=-1 if entry.stage is None else entry.stage,
        offer_id=entry.offer_id or 0,
        machine_id=entry.machine_id,
        host_id=entry.host_id,
        price_per_hour=entry.price_per_hour or 0.0,
    )
    return Lease(candidate, Standing.CREATING, when, made_at=when, unresolved_at=sent, logs_done=True)


def _after(lease: Lease, entry: Entry, when: float) -> Lease:
    if entry.instance_id is not None and entry.instance_id not in lease.ids:
        lease = replace(lease, rented=(*lease.rented, Rented(entry.instance_id)))
    match entry.kind:
        case Kind.GONE:
            lease = replace(lease, standing=Standing.GONE)
        case Kind.CREATED | Kind.REFUSED:
            lease = replace(lease, unresolved_at=None)
        case Kind.UNKNOWN:
            lease = replace(lease, unresolved_at=when)
    return replace(lease, reason=entry.reason or lease.reason)


def _object(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):  # torn, or the padding a crashed file system left
        return {}
    return told if isinstance(told, dict) else {}


def _header(told: dict[str, Any]) -> RunHeader | None:
    try:
        return RunHeader(
            run_id=str(told["run_id"]),
            pid=int(told["pid"]),
            process_started=float(told["process_started"]),
            host=str(told["host"]),
            url=str(told["url"]),
            account=None if told.get("account") is None else str(told["account"]),
            boot=str(told.get("boot") or ""),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _dated(told: dict[str, Any]) -> Dated | None:
    at = _number(told.get("at"))
    kind = next((kind for kind in Kind if kind == told.get("kind")), None)
    if at is None or kind is None:
        return None
    return Dated(at, Entry(kind, **{name: read(told.get(name)) for name, read in _DETAILS.items()}))


def _number(value: object) -> float | None:
    """None for what a damaged line may have in the place of a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


_DETAILS: dict[str, Callable[[object], Any]] = {
    "label": _text,
    "instance_id": _whole,
    "stage": _whole,
    "offer_id": _whole,
    "machine_id": _whole,
    "host_id": _whole,
    "price_per_hour": _number,
    "reason": _text,
}
"""How each field of an Entry is read; what is not of its kind counts as not there."""


def _failure(path: Path, error: OSError) -> EnvironmentFault:
    kind = NotEnoughDisk if error.errno in _FULL else EnvironmentFault
    return kind(
        f"the journal of rented instances {path} cannot be used: {error.strerror}",
        remedy="Nothing is rented without it; free space or mend its permissions (XDG_STATE_HOME chooses its place).",
    )


def _prune(directory: Path) -> None:
    """The oldest closed journals go; one that tells of something not verified stays for ever."""
    with suppress(OSError, EnvironmentFault):  # an old journal that cannot be read is no reason to rent nothing
        closed = [record for record in read_journals(directory) if record.closed and record.entries]
        for record in closed[: max(0, len(closed) - KEPT_CLOSED)]:
            record.path.unlink()
