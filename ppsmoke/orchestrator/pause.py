"""Ctrl-Z in a run: the stages are told before this process stops, and again when it goes on; nobody takes it for dead.

QUIC gives a connection up that was silent for 30 s, and a process that is stopped cannot send: after a longer stop the
edges go on over new connections. The run's deadlines stand still meanwhile; a budget for rented machines does not: they
cost money all the time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ppsmoke.errors import PpError
from ppsmoke.messages import PauseRun, ResumeRun
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.options import View
from ppsmoke.run_events import RunPaused, RunResumed
from ppsmoke.waiting import wait_for

_TELL_S = 1.0
"""For all stages to say that they have heard it. One that is not linked yet cannot."""


_STOPPING_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN)
"""Ctrl-Z; and a held run in the background that wants to read a prompt from the terminal."""


def stop_process() -> None:
    """Stop, by the default action of SIGTSTP: none where no shell could go on from it. Returns when it is over."""
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)


class Pause:
    """Made by the run, in its event loop, once its cluster exists."""

    def __init__(
        self, cluster: Cluster, deadline: PhaseDeadline, view: View, *, stop: Callable[[], None] = stop_process
    ) -> None:
        self._cluster = cluster
        self._deadline = deadline
        self._view = view
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._paused: set[int] = set()
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listen()

    def _listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # which alone can take a signal over
        for number in _STOPPING_SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:  # where it is ignored it stays so
                self._loop.add_signal_handler(number, self.begin)
        # A read from the terminal is tried, and SIGTTIN comes, over and over until we stop: no reason to complain.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)

    def begin(self) -> None:
        """Tell the stages, stop, and go on when this process is continued."""
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._pause())

    def heard(self, stage: int) -> None:
        """A stage has answered."""
        self._paused.add(stage)
        self._heard.set()

    async def _pause(self) -> None:
        self._paused.clear()
        self._view.settle()
        with suppress(TimeoutError):
            await wait_for(self._tell_all(), _TELL_S)
        self._view.line(f"stopped: {self._meanwhile()}; fg or bg goes on")
        self._view.happened(RunPaused())
        began = time.monotonic()
        self._stop()
        away_s = time.monotonic() - began
        self._view.happened(RunResumed(away_s))
        self._listen()
        self._go_on(away_s)
        await self._send_all(ResumeRun(run_id=self._cluster.run_id))

    def _meanwhile(self) -> str:
        if self._cluster.nodes.network.remote:
            return "the machines cost money all the same, and end themselves after --orphan-timeout without us"
        return "the stages wait"

    def _go_on(self, away_s: float) -> None:
        if self._cluster.nodes.network.remote:
            self._deadline.prolong(away_s)  # what is spent and when the market was asked is told by the true clock
        else:
            stand_still(self._loop, away_s)
        self._view.line(f"going on after {away_s:.0f} s")

    async def _tell_all(self) -> None:
        await self._send_all(PauseRun(run_id=self._cluster.run_id))
        while len(self._paused) < len(self._cluster.plan.stages):
            self._heard.clear()
            await self._heard.wait()

    async def _send_all(self, message: PauseRun | ResumeRun) -> None:
        await asyncio.gather(*(self._send(stage.stage_index, message) for stage in self._cluster.plan.stages))

    async def _send(self, stage: int, message: PauseRun | ResumeRun) -> None:
        try:
            await self._cluster.tell(stage, message)
        except PpError as error:
            self._view.detail(f"{message.type} did not reach stage {stage}: {error}")


def stand_still(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Let the loop's clock show so much less: whatever waits in it waits so much longer."""
    before = loop.time
    loop.time = lambda: before() - seconds  # type: ignore[method-assign]
