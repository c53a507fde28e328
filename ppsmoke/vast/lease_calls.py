"""The calls that the lease book makes, each of which ends in exactly one event, whatever happens.

What is not known for certain becomes an event that says so: a create that broke in any way may have rented, a listing
that broke proves nothing, a destroy that broke is to be asked again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ppsmoke.errors import CreateFailed, PpError, RunFailed, VastKeyRejected
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.instance_state import Readiness, judge
from ppsmoke.vast.lease_events import (
    Created,
    CreateRefused,
    CreateUnknown,
    DestroyAnswered,
    FindOffer,
    Listed,
    ListFailed,
    LogsSaved,
    NoOffer,
    OfferFound,
    Seen,
    Verdict,
)
from ppsmoke.vast.lease_labels import stage_label
from ppsmoke.vast.lease_records import Candidate, Lease, Standing
from ppsmoke.vast.records import CreateRequest, Instance, Offer, parse_instance
from ppsmoke.wording import without_stop

log = logging.getLogger("ppsmoke.vast")

_VERDICTS = {Readiness.WAIT: Verdict.WAIT, Readiness.READY: Verdict.READY, Readiness.FAILED: Verdict.FAILED}


class OfferSource(Protocol):
    """Where a machine comes from when the one chosen first is gone or has failed."""

    async def another(self, wish: FindOffer) -> Offer:
        """An offer as the wish asks. Raises TooFewOffers, VastFailed."""


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


class LeaseCalls:
    """`limit_s` bounds each call, should it not come back by itself. `seen`: the instances of all listings so far."""

    def __init__(self, api: VastApi, renting: Renting | None, limit_s: float) -> None:
        """Without `renting` only what is there can be listed and destroyed."""
        self._api = api
        self._renting = renting
        self._limit_s = limit_s
        self._requests: dict[str, CreateRequest] = {}
        self.seen: dict[int, Instance] = {}

    @property
    def renting(self) -> Renting:
        if self._renting is None:
            raise RuntimeError("this book only releases")
        return self._renting

    def candidate(self, stage: int, offer: Offer) -> Candidate:
        """An offer with a label of its own."""
        return Candidate(
            label=stage_label(self.renting.run_id, stage, self.renting.new_nonce()),
            stage=stage,
            offer_id=offer.id,
            machine_id=offer.machine_id,
            host_id=offer.host_id,
            price_per_hour=offer.price_per_hour_usd,
            running_s=self.renting.running_s(offer),
        )

    async def create(self, candidate: Candidate) -> Created | CreateRefused | CreateUnknown:
        label = candidate.label
        try:
            request = self.renting.request_for(candidate)
            if request.label != label:
                raise ValueError(f"the request for {label} is labelled {request.label}")
        except PpError as error:
            return CreateRefused(label, False, error)
        except Exception as error:  # nothing was sent
            what = f"stage {candidate.stage}: what to ask for could not be told: {reason_of(error)}"
            return CreateRefused(label, False, RunFailed(what, stage=candidate.stage, phase="renting"))
        self._requests[label] = request
        try:
            async with asyncio.timeout(self._limit_s):
                return Created(label, await self._api.create(candidate.offer_id, request))
        except CreateFailed as error:
            if error.outcome == "unknown":
                return CreateUnknown(label, str(error), error.created_instance_id)
            return CreateRefused(label, error.try_another, error, error.created_instance_id)
        except Exception as error:  # whatever it was, the request may have been sent
            return CreateUnknown(label, reason_of(error))

    async def find_offer(self, wish: FindOffer) -> OfferFound | NoOffer:
        try:
            async with asyncio.timeout(self._limit_s):
                return OfferFound(self.candidate(wish.stage, await self.renting.offers.another(wish)))
        except PpError as error:
            return NoOffer(wish.stage, error)
        except Exception as error:
            what = f"stage {wish.stage}: no other offer could be found: {reason_of(error)}"
            return NoOffer(wish.stage, RunFailed(what, stage=wish.stage, phase="renting"))

    async def list_all(self, began: float, leases: Callable[[], Iterable[Lease]]) -> Listed | ListFailed:
        """`leases`: those held when the answer is there."""
        try:
            async with asyncio.timeout(self._limit_s):
                instances = await self._api.list_instances(patience_s=0.0)
        except Exception as error:
            log.debug("a listing failed: %s", error)
            return ListFailed(reason_of(error), refused=isinstance(error, VastKeyRejected))
        self.seen |= {instance.id: instance for instance in instances}
        held = list(leases())
        return Listed(tuple(self._as_seen(instance, held) for instance in instances), began)

    async def destroy(self, instance_id: int) -> DestroyAnswered:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._api.destroy(instance_id, patience_s=0.0)
        except Exception as error:
            log.debug("destroying instance %d failed: %s", instance_id, error)
            refused = isinstance(error, VastKeyRejected)
            return DestroyAnswered(instance_id, False, reason_of(error), refused)
        return DestroyAnswered(instance_id, True)

    async def save_logs(self, label: str, instance_id: int, most_s: float) -> LogsSaved:
        instance = self.seen.get(instance_id) or parse_instance({"id": instance_id, "label": label})
        try:
            async with asyncio.timeout(most_s):
                await self.renting.save_logs(instance)
        except Exception as error:
            log.debug("the logs of instance %d were not saved: %s", instance_id, error)
        return LogsSaved(label)

    def _as_seen(self, instance: Instance, held: Iterable[Lease]) -> Seen:
        lease = next((x for x in held if instance.id in x.ids), None)
        request = self._requests.get(lease.label) if lease is not None else None
        verdict = judge(
            instance,
            wanted_disk_gb=request.disk_gb if request is not None else None,
            was_ready=lease is not None and lease.standing is Standing.RUNNING,
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


def reason_of(error: BaseException) -> str:
    """Its text; its name where it has none."""
    return without_stop(str(error)) or type(error).__name__
