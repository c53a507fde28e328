"""A machine whose clock is set anew, by an hour or a year, is as alive as before: only monotonic clocks count."""

from __future__ import annotations

import ast
import asyncio
import itertools
import time
from pathlib import Path

import pytest

import ppsmoke
from ppsmoke.membership import stage_name
from tests.membership.kit import cluster
from tests.transport.kit import PATIENCE_S, eventually, run_clean

JUDGES = ("edges", "membership", "orchestrator", "paths", "stage", "transport")
WALL_CLOCKS = {("time", name) for name in ("time", "time_ns", "localtime", "gmtime", "ctime")} | {
    ("datetime", name) for name in ("now", "utcnow", "today")
}


def wall_clocks(path: Path) -> list[str]:
    """Where a file reads one."""
    return [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_CLOCKS
    ]


def test_nothing_that_judges_peers_or_carries_data_reads_a_wall_clock() -> None:
    root = Path(ppsmoke.__file__).parent
    files = [path for folder in JUDGES for path in (root / folder).rglob("*.py")]
    assert len(files) > 50
    assert [place for path in files for place in wall_clocks(path)] == []


def test_members_stay_alive_while_the_wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = itertools.cycle([3600.0, -7200.0, 86400.0 * 365, -86400.0 * 365])
    really = time.time

    async def work() -> None:
        async with cluster(2) as made:
            await asyncio.gather(*(member.join(PATIENCE_S) for member in made.members))
            for index, member in enumerate(made.members):
                await member.register(stage_name(index), PATIENCE_S)
            monkeypatch.setattr(time, "time", lambda: really() + next(jumps))
            rows = await made.seed_membership.table()
            heard = {peer.id: made.seed_membership.heard_within(peer.id, PATIENCE_S) for peer in made.peers}
            assert all(heard.values())
            # Several rounds of probes later.
            driver = made.seed_membership._driver
            before = dict(driver.heard_at)
            await eventually(lambda: all(driver.heard_at[peer.id] > before[peer.id] + 2 for peer in made.peers))
            rows = await made.seed_membership.table()
            assert {(row.state, row.incarnation) for row in rows} == {("alive", 0)}

    run_clean(work())
