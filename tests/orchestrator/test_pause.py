"""Ctrl-Z as the run's driver sees it, with a cluster that notes what it is told and a stop that takes no time."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ppsmoke.errors import PeerLost
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.pause import Pause, stand_still
from ppsmoke.run_events import RunEvent, Seen

PATIENCE_S = 30.0


class Cluster:
    run_id = "0" * 32

    def __init__(self, *, remote: bool, deaf: int | None = None) -> None:
        self.plan = SimpleNamespace(stages=[SimpleNamespace(stage_index=index) for index in range(3)])
        self.nodes = SimpleNamespace(network=SimpleNamespace(remote=remote))
        self.told: list[tuple[int, str]] = []
        self.pause: Pause
        self._deaf = deaf

    async def tell(self, index: int, message: Any) -> None:
        if index == self._deaf:
            raise PeerLost("no link")
        self.told.append((index, message.type))
        if message.type == "PauseRun":
            self.pause.heard(index)


class View:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def detail(self, text: str) -> None:
        pass

    def settle(self) -> None:
        pass

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        pass


def paused(cluster: Cluster, away_s: float, *, armed_s: float) -> tuple[View, list[tuple[int, str]], float]:
    """(what was said, what stages had been told at the stop, seconds that are then left of a deadline of `armed_s`)."""
    view = View()

    async def go() -> tuple[list[tuple[int, str]], float]:
        loop = asyncio.get_running_loop()
        at_stop: list[tuple[int, str]] = []
        over = asyncio.Event()

        def stop() -> None:
            at_stop.extend(cluster.told)
            over.set()
            time.sleep(away_s)

        deadline = PhaseDeadline(lambda *_: None)
        deadline.arm(armed_s, "the first token", "--response-timeout")
        pause = cluster.pause = Pause(cluster, deadline, view, stop=stop)  # type: ignore[arg-type]
        pause.begin()
        pause.begin()  # a second Ctrl-Z meanwhile
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        assert pause._task is not None
        await asyncio.wait_for(pause._task, PATIENCE_S)
        assert deadline._timer is not None
        left_s = deadline._timer.when() - loop.time()
        deadline.disarm()
        return at_stop, left_s

    return view, *asyncio.run(go())


@pytest.mark.parametrize("remote", [False, True])
def test_every_stage_is_told_before_and_after_and_the_phase_loses_no_time(remote: bool) -> None:
    cluster = Cluster(remote=remote)
    view, at_stop, left_s = paused(cluster, 0.3, armed_s=100.0)
    assert at_stop == [(index, "PauseRun") for index in range(3)]
    assert cluster.told[3:] == [(index, "ResumeRun") for index in range(3)]
    assert left_s == pytest.approx(100.0, abs=0.2)
    assert ("--orphan-timeout" in view.lines[0]) is remote
    assert view.lines[-1] == "going on after 0 s"


def test_a_stage_that_cannot_be_told_holds_nobody_up() -> None:
    cluster = Cluster(remote=False, deaf=1)
    _, at_stop, _ = paused(cluster, 0.0, armed_s=1.0)
    assert at_stop == [(0, "PauseRun"), (2, "PauseRun")]


def test_a_clock_that_stood_still_shows_so_much_less() -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        stand_still(loop, 1000.0)
        stand_still(loop, 500.0)
        await asyncio.sleep(0.01)
        return before - loop.time()

    assert asyncio.run(go()) == pytest.approx(1500.0, abs=1.0)
