"""The vast.ai REST API as typed calls: over httpx, paced, with every answer judged by its body.

Whatever a call returns is proven; anything else is raised. A create is sent once and never repeated after it may have
taken effect. The key travels in one header, to the API's own address only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import httpx

from ppsmoke.errors import CreateFailed, ListingIncomplete, VastUnavailable
from ppsmoke.vast.answers import PASSING, Call, Failure, FailureKind, created_instance_id
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.exchange import Exchange, Timeouts, is_web_address
from ppsmoke.vast.place import DEFAULT_URL
from ppsmoke.vast.records import (
    Account,
    BadRow,
    CreateRequest,
    Instance,
    Offer,
    parse_account,
    parse_instance,
    parse_offer,
    rows_of,
)
from ppsmoke.vast.wording import create_failed, failed

log = logging.getLogger("ppsmoke.vast")

PAGE_SIZE = 25
"""The most rows that one page of a listing has."""

_MAX_PAGES = 200
_LISTING_TRIES = 3


class VastApi(Protocol):
    """What the lease book needs of vast.ai. Every method may raise VastFailed; none returns what was not proven.

    `patience_s`: how long passing failures are waited out by trying again; None is the client's own default, 0 is one
    try.
    """

    async def create(self, offer_id: int, request: CreateRequest) -> int:
        """Rent; the new instance's id. Raises CreateFailed only, which says whether it may have taken effect.

        When the caller is cancelled in here the outcome is unknown too.
        """

    async def list_instances(
        self, *, labels: Sequence[str] | None = None, patience_s: float | None = None
    ) -> list[Instance]:
        """All instances of the account, or those with exactly these labels: complete, or raises."""

    async def show_instance(self, instance_id: int, *, patience_s: float | None = None) -> Instance | None:
        """One instance; None only when the service says that there is no such."""

    async def destroy(
        self, instance_id: int, *, patience_s: float | None = None
    ) -> Literal["accepted", "no_such_instance"]:
        """Ask for its end. Both answers mean that nothing is left to ask, neither that it is gone: list to verify."""

    async def instance_logs(
        self, instance_id: int, *, daemon: bool = False, tail: int = 1000, patience_s: float | None = None
    ) -> str:
        """The last lines of the container's output, or of its host's daemon. Empty is an answer too."""


class VastClient:
    """An async context manager. `time_scale` shrinks every wait (pacing, backoff, patience) alike, not the timeouts."""

    def __init__(
        self,
        key: ApiKey | None,
        *,
        base_url: str = DEFAULT_URL,
        transport: httpx.AsyncBaseTransport | None = None,
        timeouts: Timeouts | None = None,
        time_scale: float = 1.0,
        patience_s: float = 60.0,
        log_patience_s: float = 45.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Without a key only `search_offers` is answered. Raises UsageError for an address that would show the key."""
        self._exchange = Exchange(
            key,
            base_url=base_url,
            transport=transport,
            timeouts=timeouts or Timeouts(),
            time_scale=time_scale,
            now=now,
            sleep=sleep,
        )
        self._patience_s = patience_s
        self._log_patience_s = log_patience_s
        self._creating = asyncio.Lock()
        self._used_offers: set[int] = set()
        self.on_secret: Callable[[str], None] = lambda _secret: None  # hears each instance's own key

    def __repr__(self) -> str:
        return f"VastClient({self._exchange.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exchange.close()

    async def search_offers(self, query: Mapping[str, Any], *, patience_s: float | None = None) -> list[Offer]:
        """One page of the market, as the query object asks; rows without an id or a price are left out."""
        body = await self._ask(Call.SEARCH, "POST", "/api/v0/bundles/", json_body=query, patience_s=patience_s)
        rows = rows_of(body.get("offers"))
        if rows is None:
            raise VastUnavailable("vast.ai answered a search without a list of offers", phase=Call.SEARCH)
        offers = []
        for row in rows:
            try:
                offers.append(parse_offer(row))
            except BadRow as error:
                log.debug("an offer is left out: %s", error)
        log.debug("a search gave %d offers", len(offers))
        return offers

    async def account(self, *, patience_s: float | None = None) -> Account:
        """What the account can spend."""
        return parse_account(await self._ask(Call.ACCOUNT, "GET", "/api/v0/users/current/", patience_s=patience_s))

    async def create(self, offer_id: int, request: CreateRequest) -> int:
        """See VastApi. Creates go out one after another, and no offer is tried again once it may have been rented."""
        async with self._creating:
            if offer_id in self._used_offers:
                raise CreateFailed(
                    f"offer {offer_id} was used before in this run", outcome="not_created", phase=Call.CREATE
                )
            answer = await self._exchange.answer(
                Call.CREATE,
                "PUT",
                f"/api/v0/asks/{offer_id}/",
                json_body=request.body(),
                patience_s=self._patience_s,
                try_again=frozenset({FailureKind.RATE_LIMITED, FailureKind.UNSENT}),
                on_send=lambda: self._used_offers.add(offer_id),
            )
            if isinstance(answer, Failure):
                if answer.kind in (FailureKind.RATE_LIMITED, FailureKind.UNSENT):
                    self._used_offers.discard(offer_id)
                raise create_failed(offer_id, answer)
            if isinstance(key := answer.get("instance_api_key"), str):
                self.on_secret(key)
            instance_id = created_instance_id(answer)
            if instance_id is None:
                nameless = Failure(FailureKind.UNREADABLE, "an answer that does not name the new instance")
                raise create_failed(offer_id, nameless)
            log.debug("created: %d", instance_id)
            return instance_id

    async def list_instances(
        self, *, labels: Sequence[str] | None = None, patience_s: float | None = None
    ) -> list[Instance]:
        """See VastApi. Pages until the end, and counts: a list that does not add up is read anew, then raised."""
        if labels is not None and not labels:
            raise ValueError("a listing of no labels would be empty without having asked")
        reason = ""
        for _ in range(_LISTING_TRIES):
            rows, reason = await self._list_once(labels, patience_s)
            if not reason:
                log.debug("listed: %s", " ".join(f"{row.id}={row.actual_status}" for row in rows) or "nothing")
                return rows
            log.debug("a listing does not add up: %s", reason)
        raise ListingIncomplete(f"the list of instances does not add up: {reason}", phase=Call.LIST)

    async def show_instance(self, instance_id: int, *, patience_s: float | None = None) -> Instance | None:
        """See VastApi: both "no such instance" and a row that is null say so; a bare 404 does not."""
        answer = await self._exchange.answer(
            Call.SHOW,
            "GET",
            f"/api/v0/instances/{instance_id}/",
            patience_s=self._patience(patience_s),
            try_again=PASSING,
        )
        if isinstance(answer, Failure):
            if answer.kind is FailureKind.GONE:
                return None
            raise failed(Call.SHOW, answer)
        if "instances" in answer and answer["instances"] in (None, []):
            return None
        rows = rows_of(answer.get("instances"))
        for row in rows or ():
            try:
                instance = parse_instance(row)
            except BadRow:
                continue
            if instance.id == instance_id:
                return instance
        raise VastUnavailable(f"vast.ai answered about instance {instance_id} without a row of it", phase=Call.SHOW)

    async def destroy(
        self, instance_id: int, *, patience_s: float | None = None
    ) -> Literal["accepted", "no_such_instance"]:
        """See VastApi. Repeating it does no harm, so every passing failure is tried again."""
        answer = await self._exchange.answer(
            Call.DESTROY,
            "DELETE",
            f"/api/v0/instances/{instance_id}/",
            json_body={},
            patience_s=self._patience(patience_s),
            try_again=PASSING,
            require_success=True,
        )
        if isinstance(answer, Failure):
            if answer.kind is FailureKind.GONE:
                return "no_such_instance"
            raise failed(Call.DESTROY, answer, instance_id)
        log.debug("asked for the end of %d: accepted", instance_id)
        return "accepted"

    async def instance_logs(
        self, instance_id: int, *, daemon: bool = False, tail: int = 1000, patience_s: float | None = None
    ) -> str:
        """See VastApi. The host uploads the text to a place the answer names; until then that place has nothing."""
        patience = self._log_patience_s if patience_s is None else patience_s
        wish = {"tail": str(tail), **({"daemon_logs": "true"} if daemon else {})}
        body = await self._ask(
            Call.REQUEST_LOGS,
            "PUT",
            f"/api/v0/instances/request_logs/{instance_id}/",
            json_body=wish,
            patience_s=patience,
            about=instance_id,
        )
        url = body.get("result_url")
        if not isinstance(url, str) or not is_web_address(url):
            raise VastUnavailable(f"vast.ai names no place for the logs of {instance_id}", phase=Call.REQUEST_LOGS)
        content = await self._exchange.fetch(url, patience_s=patience)
        if content is None:
            raise VastUnavailable(f"the logs of instance {instance_id} did not arrive", phase=Call.REQUEST_LOGS)
        return content.decode(errors="replace")

    async def _list_once(self, labels: Sequence[str] | None, patience_s: float | None) -> tuple[list[Instance], str]:
        """The rows, and why they prove nothing; an empty reason when they are complete."""
        params = {"limit": str(PAGE_SIZE), "order_by": json.dumps([{"col": "id", "dir": "asc"}])}
        if labels is not None:
            params["select_filters"] = json.dumps({"label": {"in": list(labels)}})
        found: dict[int, Instance] = {}
        tokens: set[str] = set()
        for _ in range(_MAX_PAGES):
            body = await self._ask(Call.LIST, "GET", "/api/v1/instances/", params=params, patience_s=patience_s)
            rows, total, token = body.get("instances"), body.get("total_instances"), body.get("next_token")
            if not isinstance(rows, list) or type(total) is not int:
                return [], "a page has no rows or no total"
            for row in rows:
                try:
                    instance = parse_instance(row if isinstance(row, Mapping) else {})
                except BadRow:
                    return [], "a row has no id"
                if instance.id in found:
                    return [], f"instance {instance.id} is in it twice"
                found[instance.id] = instance
            if not token:
                reason = "" if len(found) == total else f"{len(found)} rows of {total}"
                return list(found.values()), reason
            if not isinstance(token, str) or token in tokens:
                return [], "its pages do not end"
            tokens.add(token)
            params["after_token"] = token
        return [], f"it has more than {_MAX_PAGES} pages"

    async def _ask(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json_body: Mapping[str, Any] | None = None,
        patience_s: float | None,
        about: int | None = None,
    ) -> dict[str, Any]:
        """The answer to a call that may be repeated; raises VastFailed."""
        answer = await self._exchange.answer(
            call,
            method,
            path,
            params=params,
            json_body=json_body,
            patience_s=self._patience(patience_s),
            try_again=PASSING,
        )
        if isinstance(answer, Failure):
            raise failed(call, answer, about, url=self._exchange.base_url)
        return answer

    def _patience(self, patience_s: float | None) -> float:
        return self._patience_s if patience_s is None else patience_s
