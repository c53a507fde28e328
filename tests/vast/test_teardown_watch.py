"""A run notices a teardown by what that writes into its journal, and nothing else makes it believe in one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ppsmoke.vast.journal import Journal
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_owner import header_of_this_process
from ppsmoke.vast.teardown_watch import torn_down

RUN = "7e57" * 8
MINE, GIVEN_UP = f"pp-smoke-{RUN[:8]}-0-aa", f"pp-smoke-{RUN[:8]}-1-bb"


@pytest.mark.parametrize("kind", [Kind.DESTROY, Kind.ACCEPTED, Kind.GONE, Kind.UNVERIFIED])
def test_the_end_of_a_lease_that_is_held_is_a_teardown(kind: Kind, tmp_path: Path) -> None:
    async def watch() -> None:
        journal = Journal.begin(tmp_path, header_of_this_process(RUN, "https://vast", None), at=0.0)
        watching = asyncio.ensure_future(torn_down(journal.path, lambda: [MINE]))
        elsewhere = Journal.reopen(journal.path)
        elsewhere.append(Entry(kind, MINE, 7), at=1.0)
        await asyncio.wait_for(watching, 30)
        for file in (journal, elsewhere):
            file.close()

    asyncio.run(watch())


def test_nothing_else_in_the_journal_is(tmp_path: Path) -> None:
    """What a run writes itself: all that happens to machines it holds, and the end of those that it gave up."""

    async def watch() -> None:
        journal = Journal.begin(tmp_path, header_of_this_process(RUN, "https://vast", None), at=0.0)
        for kind in set(Kind) - {Kind.DESTROY, Kind.ACCEPTED, Kind.GONE, Kind.UNVERIFIED}:
            journal.append(Entry(kind, MINE, 7), at=1.0)
        journal.append(Entry(Kind.DESTROY, GIVEN_UP, 8), at=1.0)
        journal.append(Entry(Kind.GONE, GIVEN_UP), at=1.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(torn_down(journal.path, lambda: [MINE]), 0.2)
        journal.path.unlink()
        journal.close()

    asyncio.run(watch())
