"""The vast.ai REST API as typed calls: over httpx, paced, with every answer judged by `answers.read_answer`.

Whatever a call returns is proven; anything else is raised. A create is sent once and never repeated after it may have
taken effect. The key travels in one header, to the API's own address only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import httpx

from ppsmoke import __version__
from ppsmoke.errors import CreateFailed, ListingIncomplete, UsageError, VastUnavailable
from ppsmoke.models.hub import is_private
from ppsmoke.vast.answers import PASSING, Call, Failure, FailureKind, created_instance_id, read_answer
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.pacing import Pacer
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

DEFAULT_URL = "https://console.vast.ai"
PAGE_SIZE = 25
"""The most rows that one page of a listing has."""

_MAX_PAGES = 200
_MAX_ANSWER_BYTES = 32 * 1024 * 1024
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


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for one request; `create_s` is longer because a lost answer there costs more than the wait."""

    connect_s: float = 10.0
    request_s: float = 60.0
    create_s: float = 120.0


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
        self._base_url = _checked_url(base_url)
        self._key = key
        self._timeouts = timeouts or Timeouts()
        self._scale = time_scale
        self._patience_s = patience_s
        self._log_patience_s = log_patience_s
        self._now = now
        self._sleep = sleep
        self._pacer = Pacer(time_scale)
        self._creating = asyncio.Lock()
        self._used_offers: set[int] = set()
        try:
            self._http = httpx.AsyncClient(transport=transport, follow_redirects=False)
        except (ImportError, ValueError) as error:  # a proxy variable that httpx cannot use
            raise VastUnavailable(f"the proxy settings cannot be used: {error}") from error

    def __repr__(self) -> str:
        return f"VastClient({self._base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

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
            answer = await self._exchange(
                Call.CREATE,
                "PUT",
                f"/api/v0/asks/{offer_id}/",
                json_body=request.body(),
                patience_s=None,
                try_again=frozenset({FailureKind.RATE_LIMITED, FailureKind.UNSENT}),
                timeout_s=self._timeouts.create_s,
                on_send=lambda: self._used_offers.add(offer_id),
            )
            if isinstance(answer, Failure):
                if answer.kind in (FailureKind.RATE_LIMITED, FailureKind.UNSENT):
                    self._used_offers.discard(offer_id)
                raise create_failed(offer_id, answer)
            instance_id = created_instance_id(answer)
            if instance_id is None:
                nameless = Failure(FailureKind.UNREADABLE, "an answer that does not name the new instance")
                raise create_failed(offer_id, nameless)
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
                return rows
            log.debug("a listing does not add up: %s", reason)
        raise ListingIncomplete(f"the list of instances does not add up: {reason}", phase=Call.LIST)

    async def show_instance(self, instance_id: int, *, patience_s: float | None = None) -> Instance | None:
        """See VastApi: both "no such instance" and a row that is null say so; a bare 404 does not."""
        answer = await self._exchange(
            Call.SHOW, "GET", f"/api/v0/instances/{instance_id}/", patience_s=patience_s, try_again=PASSING
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
        answer = await self._exchange(
            Call.DESTROY,
            "DELETE",
            f"/api/v0/instances/{instance_id}/",
            json_body={},
            patience_s=patience_s,
            try_again=PASSING,
            require_success=True,
        )
        if isinstance(answer, Failure):
            if answer.kind is FailureKind.GONE:
                return "no_such_instance"
            raise failed(Call.DESTROY, answer, instance_id)
        return "accepted"

    async def instance_logs(
        self, instance_id: int, *, daemon: bool = False, tail: int = 1000, patience_s: float | None = None
    ) -> str:
        """See VastApi. The host uploads the text to a place the answer names; until then that place has nothing."""
        patience = self._log_patience_s if patience_s is None else patience_s
        give_up_at = self._now() + patience * self._scale
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
        return await self._poll_logs(instance_id, url, give_up_at)

    async def _poll_logs(self, instance_id: int, url: str, give_up_at: float) -> str:
        """Neither 403 nor 404 means more than "not yet" there. The key is not sent along."""
        pause_s = 1.0
        while True:
            timeout_s = min(self._timeouts.request_s, max(5.0, give_up_at - self._now()))
            request = self._http.build_request("GET", url, headers=_headers(), timeout=self._timeout(timeout_s))
            answer = await self._send(request, timeout_s)
            if not isinstance(answer, Failure) and answer.status_code == 200:
                return answer.content.decode(errors="replace")
            if self._now() + pause_s * self._scale > give_up_at:
                raise VastUnavailable(f"the logs of instance {instance_id} did not arrive", phase=Call.REQUEST_LOGS)
            await self._sleep(pause_s * self._scale)
            pause_s = 2.0

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
        answer = await self._exchange(
            call, method, path, params=params, json_body=json_body, patience_s=patience_s, try_again=PASSING
        )
        if isinstance(answer, Failure):
            raise failed(call, answer, about)
        return answer

    async def _exchange(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json_body: Mapping[str, Any] | None = None,
        patience_s: float | None,
        try_again: frozenset[FailureKind],
        timeout_s: float | None = None,
        on_send: Callable[[], None] = lambda: None,
        require_success: bool = False,
    ) -> dict[str, Any] | Failure:
        """One answer, after as many paced tries as patience and `try_again` allow."""
        patience = self._patience_s if patience_s is None else patience_s
        give_up_at = self._now() + patience * self._scale
        tries = 0
        while True:
            await self._wait_for_turn(call)
            on_send()
            started = self._now()
            answer = await self._once(call, method, path, params, json_body, timeout_s, require_success)
            tries += 1
            outcome = answer.kind.value if isinstance(answer, Failure) else "ok"
            log.debug("vast.ai: %s %s, try %d: %s after %.2f s", call, path, tries, outcome, self._now() - started)
            if not isinstance(answer, Failure):
                return answer
            limited = answer.kind is FailureKind.RATE_LIMITED
            pause_s = self._pacer.backoff_s(call, tries, limited=limited, asked_s=answer.wait_s)
            if answer.kind in PASSING:
                self._pacer.hold(call, self._now() + pause_s)
            if answer.kind not in try_again or self._now() + pause_s > give_up_at:
                return answer

    async def _wait_for_turn(self, call: Call) -> None:
        now = self._now()
        wait_s = self._pacer.reserve(call, now) - now
        if wait_s > 0:
            await self._sleep(wait_s)

    async def _once(
        self,
        call: Call,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        json_body: Mapping[str, Any] | None,
        timeout_s: float | None,
        require_success: bool,
    ) -> dict[str, Any] | Failure:
        request = self._http.build_request(
            method,
            self._base_url + path,
            params=params,
            json=json_body,
            headers=_headers() | (self._key.authorization() if self._key is not None else {}),
            timeout=self._timeout(timeout_s),
        )
        response = await self._send(request, timeout_s or self._timeouts.request_s)
        if isinstance(response, Failure):
            return response
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = read_answer(call, response.status_code, headers, response.content)
        if isinstance(answer, Failure):
            return replace(answer, message=self._hide(answer.message))
        if require_success and answer.get("success") is not True:
            return Failure(FailureKind.UNREADABLE, "an answer that does not say it was done", response.status_code)
        return answer

    async def _send(self, request: httpx.Request, timeout_s: float) -> _Response | Failure:
        """The whole answer, or why there is none, with what that says about whether anything was sent."""
        try:
            async with asyncio.timeout(timeout_s + self._timeouts.connect_s):
                response = await self._http.send(request, stream=True)
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
        except _NEVER_SENT as error:
            return Failure(FailureKind.UNSENT, f"no connection: {self._hide(_reason(error))}")
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            return Failure(FailureKind.UNANSWERED, f"no answer: {self._hide(_reason(error))}")
        if content is None:
            return Failure(FailureKind.UNREADABLE, "an answer that is far too long", response.status_code)
        return _Response(response.status_code, response.headers, content)

    def _timeout(self, timeout_s: float | None) -> httpx.Timeout:
        return httpx.Timeout(timeout_s or self._timeouts.request_s, connect=self._timeouts.connect_s)

    def _hide(self, text: str) -> str:
        return self._key.hide_in(text) if self._key is not None else text


@dataclass(frozen=True, slots=True)
class _Response:
    status_code: int
    headers: httpx.Headers
    content: bytes


_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def is_web_address(url: str) -> bool:
    """Whether it is an http(s) address with a host."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)


def _checked_url(url: str) -> str:
    if not is_web_address(url):
        raise UsageError(f"{url!r} is not the address of a web service")
    if not is_private(url):
        raise UsageError(
            f"{url} is not protected on the way, and the key would be readable", remedy="Use an https address."
        )
    return url.rstrip("/")


def _headers() -> dict[str, str]:
    return {"User-Agent": f"pp-smoke-run/{__version__}", "Accept": "application/json, text/plain, */*"}


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return "the time for it has passed" if isinstance(error, TimeoutError | httpx.TimeoutException) else text[:200]


async def _read(response: httpx.Response) -> bytes | None:
    """The body; None when it is longer than any answer of this service."""
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > _MAX_ANSWER_BYTES:
            return None
    return bytes(data)
