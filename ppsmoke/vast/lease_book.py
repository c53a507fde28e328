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
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from ppsmoke.errors import CreateFailed, EnvironmentFault, Interrupted, PpError, RunFailed, VastKeyRejected
from ppsmoke.vast import lease
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.instance_state import Readiness, judge
from ppsmoke.vast.lease_events import (
    Acquire,
    Action,
    Create,
    Created,
    CreateRefused,
    CreateUnknown,
    Destroy,
    DestroyAnswered,
    Done,
    Entry,
    Event,
    FindOffer,
    GiveUp,
    Held,
    Hurry,
    Kind,
    List,
    Listed,
    ListFailed,
    LogsSaved,
    Lost,
    NoOffer,
    OfferFound,
    Record,
    Recorded,
    RecordFailed,
    Release,
    Remember,
    ReplaceHost,
    SaveLogs,
    Seen,
    Tick,
    Verdict,
)
from ppsmoke.vast.lease_labels import run_label, stage_label
from ppsmoke.vast.lease_records import BookState, Candidate, LeaseLimits, LeaseTimes, Phase, Standing, spent
from ppsmoke.vast.lease_report import Unverified, unverified
from ppsmoke.vast.records import CreateRequest, Instance, Offer, parse_instance

log = logging.getLogger("ppsmoke.vast")

_VERDICTS = {Readiness.WAIT: Verdict.WAIT, Readiness.READY: Verdict.READY, Readiness.FAILED: Verdict.FAILED}


class OfferSource(Protocol):
    """Where a machine comes from when the one chosen first is gone or has failed."""

    async def another(self, wish: FindOffer) -> Offer:
        """An offer as the wish asks. Raises TooFewOffers, VastFailed."""


class Entries(Protocol):
    """Where the book writes: a Journal, or several."""

    def append(self, entry: Entry, *, at: float) -> None:
        """On the disk when it returns. Raises EnvironmentFault."""


@dataclass(frozen=True, slots=True)
class Renting:
    """What renting takes, beside the API, and whom it tells.

    `request_for`: the create call for a candidate, whose label it must carry. `save_logs`: keep an instance's logs; it
    may fail. `remember`: keep a failed machine's id, with the reason. `on_lost`: a held instance failed, with its stage
    and the reason. `running_s`: how long an offer's machine may take to `running`; None is the book's time.
    """

    run_id: str
    request_for: Callable[[Candidate], CreateRequest]
    offers: OfferSource
    save_logs: Callable[[Instance], Awaitable[None]]
    remember: Callable[[int, str], None]
    on_lost: Callable[[int, str], None]
    running_s: Callable[[Offer], float | None] = lambda offer: None
    new_nonce: Callable[[], str] = lambda: secrets.token_hex(4)


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
        self._api = api
        self._journal = journal
        self.state = state
        self._renting = renting
        self._news = news
        self._call_limit_s = call_limit_s
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Event] = deque()
        self._dispatching = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._done = asyncio.Event()
        self._broken = False
        self._requests: dict[str, CreateRequest] = {}
        self._seen: dict[int, Instance] = {}
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
        self._post(Acquire(tuple(self._candidate(stage, offer) for stage, offer in enumerate(offers))))
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
            log.exception("the lease book broke at %s", type(event).__name__)
            now, what = self._loop.time(), f"a fault of this program ended the renting: {_reason(error)}"
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
                self._spawn(self._create(candidate))
            case FindOffer():
                self._spawn(self._find_offer(action))
            case List():
                self._spawn(self._list())
            case Destroy(instance_id):
                self._spawn(self._destroy(instance_id))
            case SaveLogs(label, _, instance_id):
                self._spawn(self._save_logs(label, instance_id))
            case Remember(machine_id, reason):
                self._tell(self._rents.remember, machine_id, reason)
            case Lost(stage, reason):
                self._tell(self._rents.on_lost, stage, reason)
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
        return tuple(self._seen[x.ids[0]] for x in leases if x is not None)

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

    # ---- calls; each ends in exactly one event, whatever happens

    async def _create(self, candidate: Candidate) -> None:
        label = candidate.label
        try:
            request = self._rents.request_for(candidate)
            if request.label != label:
                raise ValueError(f"the request for {label} is labelled {request.label}")
        except (PpError, ValueError) as error:
            refused = error if isinstance(error, PpError) else RunFailed(str(error), phase="renting")
            self._post(CreateRefused(label, False, refused))
            return
        self._requests[label] = request
        try:
            async with asyncio.timeout(self._call_limit_s):
                instance_id = await self._api.create(candidate.offer_id, request)
        except CreateFailed as error:
            if error.outcome == "unknown":
                self._post(CreateUnknown(label, str(error), error.created_instance_id))
            else:
                self._post(CreateRefused(label, error.try_another, error, error.created_instance_id))
        except Exception as error:  # whatever it was, the request may have been sent
            self._post(CreateUnknown(label, _reason(error)))
        else:
            self._post(Created(label, instance_id))

    async def _find_offer(self, wish: FindOffer) -> None:
        try:
            async with asyncio.timeout(self._call_limit_s):
                offer = await self._rents.offers.another(wish)
        except PpError as error:
            self._post(NoOffer(wish.stage, error))
        except Exception as error:
            what = f"stage {wish.stage}: no other offer could be found: {_reason(error)}"
            self._post(NoOffer(wish.stage, RunFailed(what, stage=wish.stage, phase="renting")))
        else:
            self._post(OfferFound(self._candidate(wish.stage, offer)))

    async def _list(self) -> None:
        began = self._loop.time()
        try:
            async with asyncio.timeout(self._call_limit_s):
                instances = await self._api.list_instances(patience_s=0.0)
        except Exception as error:
            log.debug("a listing failed: %s", error)
            self._post(ListFailed(_reason(error), refused=isinstance(error, VastKeyRejected)))
            return
        self._seen |= {instance.id: instance for instance in instances}
        self._post(Listed(tuple(self._as_seen(instance) for instance in instances), began))

    async def _destroy(self, instance_id: int) -> None:
        try:
            async with asyncio.timeout(self._call_limit_s):
                await self._api.destroy(instance_id, patience_s=0.0)
        except Exception as error:
            log.debug("destroying instance %d failed: %s", instance_id, error)
            refused = isinstance(error, VastKeyRejected)
            self._post(DestroyAnswered(instance_id, False, _reason(error), refused))
        else:
            self._post(DestroyAnswered(instance_id, True))

    async def _save_logs(self, label: str, instance_id: int) -> None:
        instance = self._seen.get(instance_id) or parse_instance({"id": instance_id, "label": label})
        try:
            async with asyncio.timeout(self.state.times.logs):
                await self._rents.save_logs(instance)
        except Exception as error:
            log.debug("the logs of instance %d were not saved: %s", instance_id, error)
        self._post(LogsSaved(label))

    # ---- small things

    @property
    def _rents(self) -> Renting:
        if self._renting is None:
            raise RuntimeError("this book only releases")
        return self._renting

    def _candidate(self, stage: int, offer: Offer) -> Candidate:
        return Candidate(
            label=stage_label(self._rents.run_id, stage, self._rents.new_nonce()),
            stage=stage,
            offer_id=offer.id,
            machine_id=offer.machine_id,
            host_id=offer.host_id,
            price_per_hour=offer.price_per_hour_usd,
            running_s=self._rents.running_s(offer),
        )

    def _as_seen(self, instance: Instance) -> Seen:
        held = next((x for x in self.state.leases if instance.id in x.ids), None)
        request = self._requests.get(held.label) if held is not None else None
        verdict = judge(
            instance,
            wanted_disk_gb=request.disk_gb if request is not None else None,
            was_ready=held is not None and held.standing is Standing.RUNNING,
        )
        return Seen(
            instance_id=instance.id,
            label=instance.label or None,
            mark=instance.first_label or None,
            verdict=_VERDICTS[verdict.readiness],
            reason=verdict.reason,
            fatal=not verdict.another_host_helps,
            price_per_hour=instance.price_per_hour_usd,
        )

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:
        """Whom the book tells cannot hold it up."""
        try:
            whom(*what)
        except Exception:
            log.exception("news of the leases could not be told")

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
