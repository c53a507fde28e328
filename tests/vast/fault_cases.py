"""One case of the fault matrix: a small renting run, one step of it, and what goes wrong there.

The run is over the real client against the emulator's server. After each case the emulator's own ledger is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.journal import Journal
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_events import Entry
from ppsmoke.vast.teardown import choose, find_leftovers, tear_down
from tests.vast.emulated import Emulated, SmallRun, emulated
from tests.vast_emulator.faults import Rule

STAGES = 2
# Longer than a busy machine needs for an answer, mostly: one that comes too late is one more fault.
_TIMEOUT_S = 0.4
_CASE_S = 60.0

DRIVER_FAULTS = ("ctrl_c", "ctrl_c_twice", "kill", "lost_network")
TWO_AT_ONCE = {
    # Created all the same, or later, and the user leaves at that moment.
    "create": tuple(
        f"{fault}+{leave}"
        for fault in ("drop_late", "drop_after", "timeout_after", "failed_but_made", "500_after")
        for leave in ("ctrl_c", "ctrl_c_twice", "kill")
    ),
    # Not destroyed, and for a while no listing that would show it.
    "destroy": ("lies+blind", "500+blind", "drop_before+blind"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """The `nth` call of a kind; `after` "held" or "destroyed" counts from there."""

    name: str
    call: str
    nth: int = 1
    after: str = ""


STEPS = (
    Step("search", "search"),
    Step("create 1", "create", 1),
    Step("create 2", "create", 2),
    Step("poll 1", "list", 1),
    Step("poll 2", "list", 2),
    Step("poll 3", "list", 3),
    Step("poll while held", "list", 1, "held"),
    Step("logs 1", "logs", 1),
    Step("logs 3", "logs", 3),
    Step("log file", "log_file", 1),
    Step("destroy 1", "destroy", 1),
    Step("destroy 2", "destroy", 2),
    Step("verify 1", "list", 1, "destroyed"),
    Step("verify 2", "list", 2, "destroyed"),
)


@dataclass(slots=True)
class Totals:
    """Over all cases of this test run."""

    cases: int = 0
    held: int = 0
    teardowns: int = 0
    billed_after: float = 0.0
    by_fault: Counter[str] = field(default_factory=Counter)

    def add(self, other: Totals) -> None:
        self.cases += other.cases
        self.held += other.held
        self.teardowns += other.teardowns
        self.billed_after += other.billed_after
        self.by_fault.update(other.by_fault)

    def describe(self) -> str:
        return (
            f"fault matrix: {self.cases} cases of {len(self.by_fault)} kinds ({self.held} runs held their machines, "
            f"{self.teardowns} were ended by a teardown), {self.billed_after:.6f} USD billed after the end"
        )


TOTALS = Totals()


@dataclass(slots=True)
class Outcome:
    """`reached`: the step came, or the case shows nothing. `left`: what the ledger shows alive at the end."""

    case: str
    fault: str
    reached: bool = False
    held: bool = False
    error: PpError | None = None
    left: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    billed_after: float = 0.0

    def describe(self) -> str:
        return f"{self.case}: held {self.held}, error {self.error}"


async def run_case(step: Step, fault: str, directory: Path) -> Outcome:
    """One run in which `fault` strikes at `step`; a plus joins two that strike at once."""
    outcome = Outcome(f"{step.name} x {fault}", fault)
    async with asyncio.timeout(_CASE_S), emulated(timeout_s=_TIMEOUT_S) as cloud, cloud.client() as client:
        process = _Process(cloud, client, directory)
        strike = _Strike(cloud, step, fault, process)
        cloud.service.on_call = strike.on_call
        process.on_held = strike.held
        await process.live()
        outcome.reached = strike.struck
        outcome.held = process.was_held
        outcome.error = process.error
        await _end(outcome, cloud, process)
    return outcome


async def run_whole(
    faults: str, directory: Path, *, chaos: float = 0.0, seed: int = 1, running_s: float = 20.0
) -> Outcome:
    """One run in which the emulator does as it is told from the beginning."""
    case = faults or f"chaos {chaos} seed {seed}"
    outcome = Outcome(case, faults.partition("=")[2] or "chaos", reached=True)
    running = emulated(faults, timeout_s=_TIMEOUT_S, chaos=chaos, seed=seed)
    async with asyncio.timeout(_CASE_S), running as cloud, cloud.client() as client:
        cloud.running_s = running_s
        process = _Process(cloud, client, directory)
        await process.live()
        outcome.held, outcome.error = process.was_held, process.error
        await _end(outcome, cloud, process, must_be_verified=not chaos)
    return outcome


async def _end(outcome: Outcome, cloud: Emulated, process: _Process, *, must_be_verified: bool = True) -> None:
    """What is left, and named; then, where something may be left, what a teardown makes of it."""
    TOTALS.cases += 1
    TOTALS.held += outcome.held
    TOTALS.by_fault[outcome.fault] += 1
    ended = cloud.service.settle()
    left: list[str] = []
    if not process.dead:  # what a dead one has under way shows up when it does
        left = cloud.left()
        outcome.unnamed = [life for life in left if not process.names(life)]
    if process.dead or process.hurried or (left and not must_be_verified):
        TOTALS.teardowns += 1
        cloud.service.faults.rules, cloud.service.faults.chaos = (), 0.0
        async with cloud.client() as client:
            runs = await find_leftovers(client, process.directory, url=cloud.url, account=None)
            chosen = choose(runs, label=None, everything=False).chosen
            torn = await tear_down(client, chosen, times=cloud.times())
            outcome.unnamed += [item.describe("") for item in torn.unverified]
        ended = cloud.service.settle()
    outcome.left = cloud.left()
    outcome.billed_after = max(0.0, cloud.billed_after(ended))
    TOTALS.billed_after += outcome.billed_after


class _Process:
    """The process of a run, which can be interrupted, or killed so that it does nothing more."""

    def __init__(self, cloud: Emulated, client: VastClient, directory: Path) -> None:
        self.directory = directory
        self.dead = False
        self.hurried = False
        self.was_held = False
        self.error: PpError | None = None
        self.on_held: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._killed = asyncio.Event()
        self._run = SmallRun(cloud, client, directory, STAGES)
        self._book: LeaseBook | None = None
        self._task: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Until the run has ended or was killed."""
        self._task = asyncio.create_task(self._rent())
        killed = asyncio.create_task(self._killed.wait())
        await asyncio.wait({self._task, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if not self._task.done():
            await self._bury()
        with suppress(asyncio.CancelledError):
            self._task.result()

    def interrupt(self, times: int = 1) -> None:
        """Ctrl-C, from any thread; the second time a moment later."""
        for nth in range(times):
            self._loop.call_soon_threadsafe(self._loop.call_later, nth * 0.02, self._cancel)

    def kill(self) -> None:
        """kill -9, from any thread: from now on it writes nothing, hears nothing and asks for nothing."""
        self.dead = True
        self._loop.call_soon_threadsafe(self._killed.set)

    def names(self, life: str) -> bool:
        """Whether what it could not verify, and named, is this."""
        left = self._book.unverified if self._book is not None else ()
        return any(str(item.instance_id) in life or item.label in life for item in left)

    async def _rent(self) -> None:
        journal = self._run.journal()
        mortal = _Mortal(self, self._run.client, journal)
        try:
            offers = (await self._run.search())[:STAGES]
            self._book = LeaseBook(mortal, mortal, self._run.fresh(), self._run.renting())
            async with self._book as book:
                await book.acquire(offers)
                self.was_held = True
                self.on_held()
                await self._run.hold()
        except PpError as error:
            self.error = error
        finally:
            journal.close()

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self.hurried = self.hurried or (self._book is not None and self._book.state.give_up_at is not None)
            self._task.cancel()

    async def _bury(self) -> None:
        """Take down what stands for the dead process; it can do no harm any more."""
        assert self._task is not None
        while not self._task.done():
            self._task.cancel()
            if self._book is not None:
                self._book.give_up("it is dead")
            await asyncio.wait({self._task}, timeout=0.05)


class _Mortal:
    """API and journal of a process; both are out of its reach once it is dead."""

    def __init__(self, process: _Process, client: VastClient, journal: Journal) -> None:
        self._process = process
        self._client = client
        self._journal = journal

    def append(self, entry: Entry, *, at: float) -> None:
        if not self._process.dead:
            self._journal.append(entry, at=at)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            if self._process.dead:
                await asyncio.Event().wait()
            try:
                return await getattr(self._client, name)(*args, **options)
            finally:
                if self._process.dead:
                    await asyncio.Event().wait()

        return call


class _Strike:
    """Waits for the step, in the server's threads, and lets the fault happen there, once."""

    def __init__(self, cloud: Emulated, step: Step, fault: str, process: _Process) -> None:
        self.struck = False
        self._cloud = cloud
        self._step = step
        self._fault = fault
        self._process = process
        self._counted = 0
        self._held = False
        self._destroys = 0

    def held(self) -> None:
        self._held = True

    def on_call(self, call: str, number: int) -> None:
        self._destroys += call == "destroy"
        after = {"": True, "held": self._held, "destroyed": self._destroys >= STAGES}[self._step.after]
        if call != self._step.call or not after:
            return
        self._counted += 1
        if self._counted == self._step.nth and not self.struck:
            self.struck = True
            self._happen(call, number)

    def _happen(self, call: str, number: int) -> None:
        for name in self._fault.split("+"):
            self._happen_once(name, call, number)

    def _happen_once(self, fault: str, call: str, number: int) -> None:
        faults = self._cloud.service.faults
        match fault:
            case "ctrl_c":
                self._process.interrupt()
            case "ctrl_c_twice":
                self._process.interrupt(times=2)
            case "kill":
                self._process.kill()
            case "lost_network":
                since = faults.counts["any"] + 1
                faults.rules += (Rule("any", since, since + 9, "drop_before"),)
            case "blind":
                since = faults.counts["list"] + 1
                faults.rules += (Rule("list", since, since + 7, "502_html"),)
            case name:
                faults.rules += (Rule(call, number, number, name),)
