"""The driver of the lease book: performs what its machine asks for, over the API, the journal and the clock.

    book = LeaseBook(api, journal, new_book(run_id, 5), renting)
    try:
        instances = await book.acquire(offers)   # one running instance a stage, or the reason why not
        ...
    finally:
        await book.release("the run is over")    # comes back when nothing is left, or with what could not be verified

`release` cannot be cut short by accident: being cancelled in it once hurries it, twice ends it at once, and what is not
verified by then is named all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from ppsmoke.errors import EnvironmentFault, Interrupted, PpError, RunFailed
from ppsmoke.vast import lease
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.lease_calls import LeaseCalls, OfferSource, Renting, reason_of
from ppsmoke.vast.lease_events import (
    Acquire,
    Action,
    Create,
    Destroy,
    Done,
    Entry,
    Event,
    FindOffer,
    GiveUp,
    Held,
    Hurry,
    Kind,
    List,
    Lost,
    Record,
    Recorded,
    RecordFailed,
    Release,
    Remember,
    ReplaceHost,
    SaveLogs,
    Tick,
)
from ppsmoke.vast.lease_labels import run_label
from ppsmoke.vast.lease_records import BookState, LeaseLimits, LeaseTimes, Phase, spent
from ppsmoke.vast.lease_report import Unverified, unverified
from ppsmoke.vast.records import Instance, Offer

__all__ = ["Entries", "LeaseBook", "OfferSource", "Renting", "new_book"]

log = logging.getLogger("ppsmoke.vast")


class Entries(Protocol):
    """Where the book writes: a Journal, or several."""

    def append(self, entry: Entry, *, at: float) -> None:
        """On the disk when it returns. Raises EnvironmentFault."""


def new_book(
    run_id: str, num_stages: int, times: LeaseTimes | None = None, limits: LeaseLimits | None = None
) -> BookState:
    """The state of a book that holds nothing yet."""
    return BookState((run_label(run_id),), num_stages, times or LeaseTimes(), limits or LeaseLimits())


class LeaseBook:
    """For one run, or for one teardown. Made and used inside one event loop."""

    def __init__(
        self,
        api: VastApi,
        journal: Entries,
        state: BookState,
        renting: Renting | None,
        *,
        news: Callable[[Entry], None] = lambda entry: None,
        call_limit_s: float = 300.0,
    ) -> None:
        """`renting` None: only to release what `state` holds. `news` gets every entry when it goes to the journal.
        `call_limit_s` bounds a call to the API that does not come back by itself."""
        self._calls = LeaseCalls(api, renting, call_limit_s)
        self._journal = journal
        self.state = state
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Event] = deque()
        self._dispatching = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Event]] = set()
        self._changed = asyncio.Event()
        self._done = asyncio.Event()
        self._broken = False
        self._journal_failed = False
        self._interruptions = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cause = error if isinstance(error, PpError) else None
        await self.release("the run is over" if error is None else str(error) or type(error).__name__, cause)

    @property
    def spent_usd(self) -> float:
        """Until now, at most."""
        return spent(self.state, self._loop.time())

    @property
    def unverified(self) -> tuple[Unverified, ...]:
        """What is named to the user once the release is over."""
        return unverified(self.state)

    async def acquire(self, offers: Sequence[Offer]) -> tuple[Instance, ...]:
        """A running instance for each stage, `offers[i]` being tried first for stage i.

        Raises the reason as soon as the book rolls back: `release` then waits for the end of that. There is no deadline
        in here but those of the times and limits; a budget of the run is kept by releasing.
        """
        self._post(Acquire(tuple(self._calls.candidate(stage, offer) for stage, offer in enumerate(offers))))
        return await self._held()

    async def replace(self, stage: int, reason: str) -> tuple[Instance, ...]:
        """Another machine for a stage whose machine runs and does not work; raises as `acquire` does."""
        self._post(ReplaceHost(stage, reason))
        return await self._held()

    async def failure(self) -> PpError:
        """Comes back when the book rolls back by itself, with the reason: the most that may be spent, say."""
        while self.state.phase not in (Phase.RELEASING, Phase.DONE):
            self._changed.clear()
            await self._changed.wait()
        return self.state.error or RunFailed("the rented machines were given back", phase="renting")

    async def release(self, reason: str, error: PpError | None = None) -> tuple[Unverified, ...]:
        """End everything; what could not be verified as destroyed, which is nothing if all went well."""
        cancelled = 0
        self._post(Release(reason, error))
        while not self._done.is_set():
            try:
                await self._done.wait()
            except asyncio.CancelledError:
                cancelled += 1
                self.hurry() if cancelled == 1 else self.give_up("it was interrupted")
        await self._close()
        if cancelled:
            raise asyncio.CancelledError
        return self.unverified

    def interrupt(self, error: Interrupted) -> None:
        """A signal came: the first gives everything back, the second hurries, the third ends the wait."""
        self._interruptions += 1
        if self._interruptions == 1:
            self._post(Release(str(error), error))
        elif self._interruptions == 2:
            self.hurry()
        else:
            self.give_up(str(error))

    def hurry(self) -> None:
        """The user asked a second time: destroy without logs, and wait shortly."""
        self._post(Hurry())

    def give_up(self, reason: str) -> None:
        """The user asked a third time: stop now."""
        self._post(GiveUp(reason))

    # ---- the machine

    def _post(self, event: Event) -> None:
        self._queue.append(event)
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while self._queue and not self._done.is_set():
                self._step_safely(self._queue.popleft())
        finally:
            self._dispatching = False
            self._changed.set()

    def _step_safely(self, event: Event) -> None:
        """A fault of this program in here must not leave anything rented: the book is released as it was before it."""
        try:
            self._step(event)
        except Exception as error:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        log.error("the lease book broke", exc_info=error)
        now, what = self._loop.time(), f"a fault of this program ended the renting: {reason_of(error)}"
        if self._broken:
            self.state = lease.given_up(self.state, now, what)
            self._done.set()
            return
        self._broken = True
        self.state = lease.in_release(self.state, now, RunFailed(what, phase="renting"))
        self._loop.call_soon(self._post, Tick())

    def _step(self, event: Event) -> None:
        self.state, actions = lease.step(self.state, event, self._loop.time())
        for action in actions:
            self._perform(action)
        if self._timer is not None:
            self._timer.cancel()
        wakeup = lease.next_wakeup(self.state)
        self._timer = None if wakeup is None else self._loop.call_at(wakeup, self._post, Tick())

    def _perform(self, action: Action) -> None:
        match action:
            case Record(entry):
                self._record(entry)
            case Create(candidate):
                self._spawn(self._calls.create(candidate))
            case FindOffer():
                self._spawn(self._calls.find_offer(action))
            case List():
                self._spawn(self._calls.list_all(self._loop.time(), lambda: self.state.leases))
            case Destroy(instance_id):
                self._spawn(self._calls.destroy(instance_id))
            case SaveLogs(label, _, instance_id):
                self._spawn(self._calls.save_logs(label, instance_id, self.state.times.logs))
            case Remember(machine_id, reason):
                self._tell(self._calls.renting.remember, machine_id, reason)
            case Lost(stage, reason):
                self._tell(self._calls.renting.on_lost, stage, reason)
            case Held():
                pass  # `_held` looks at the phase
            case Done():
                self._done.set()

    async def _held(self) -> tuple[Instance, ...]:
        while self.state.phase is Phase.ACQUIRING:
            self._changed.clear()
            await self._changed.wait()
        if self.state.phase is not Phase.HELD:
            raise self.state.error or RunFailed("the rented machines were given back", phase="renting")
        leases = [self.state.of_stage(stage) for stage in range(self.state.num_stages)]
        return tuple(self._calls.seen[x.ids[0]] for x in leases if x is not None)

    def _record(self, entry: Entry) -> None:
        self._tell(self._news, entry)
        try:
            self._journal.append(entry, at=time.time())
        except EnvironmentFault as error:
            if entry.kind is Kind.INTENT:
                self._post(RecordFailed(error))
            elif not self._journal_failed:  # the intent is there, and its label leads to the instance
                log.warning("%s", error)
            self._journal_failed = True
            return
        if entry.kind is Kind.INTENT and entry.label is not None:
            self._post(Recorded(entry.label))

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:
        """Whom the book tells cannot hold it up."""
        try:
            whom(*what)
        except Exception:
            log.exception("news of the leases could not be told")

    def _spawn(self, call: Coroutine[Any, Any, Event]) -> None:
        task = self._loop.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._post(task.result())
        elif not self._done.is_set():
            self._break(error)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
