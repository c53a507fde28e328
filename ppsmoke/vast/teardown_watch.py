"""Noticing that a teardown, started elsewhere on this machine, is ending the run of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ppsmoke.errors import EnvironmentFault
from ppsmoke.vast.journal import Dated, read_journal
from ppsmoke.vast.lease_events import Kind

_POLL_S = 0.5
_ENDINGS = frozenset({Kind.DESTROY, Kind.ACCEPTED, Kind.GONE, Kind.UNVERIFIED})


async def torn_down(journal: Path, held: Callable[[], Iterable[str]]) -> None:
    """Return when somebody else wrote into the run's journal that it ends a lease.

    A teardown does so before its first destroy call. `held`: the labels of the leases that this process holds, as of
    now; it writes their end itself only after it has let go of them.
    """
    size = -1
    while True:
        now = _size(journal)
        if now != size:
            size = now
            if ends_one_of(frozenset(held()), _entries(journal)):
                return
        await asyncio.sleep(_POLL_S)


def ends_one_of(held: frozenset[str], entries: Iterable[Dated]) -> bool:
    """Whether the journal tells of the end of a lease that is held."""
    return any(dated.entry.kind in _ENDINGS and dated.entry.label in held for dated in entries)


def _size(journal: Path) -> int:
    """0 for a file that cannot be looked at: the listings will tell what became of the machines."""
    try:
        return journal.stat().st_size
    except OSError:
        return 0


def _entries(journal: Path) -> tuple[Dated, ...]:
    with suppress(OSError, EnvironmentFault):
        record = read_journal(journal)
        return () if record is None else record.entries
    return ()
