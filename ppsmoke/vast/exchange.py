"""One exchange with vast.ai: paced, repeated as far as that does no harm, with the key in its header and nowhere else.

What comes back is an answer that was understood, or a Failure that says what is known of the request's effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from ppsmoke import __version__
from ppsmoke.errors import UsageError, VastUnavailable
from ppsmoke.models.hub import is_private
from ppsmoke.vast.answers import PASSING, Call, Failure, FailureKind, read_answer
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.pacing import Pacer
from ppsmoke.wording import without_stop

log = logging.getLogger("ppsmoke.vast")

_MAX_ANSWER_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for one request; `create_s` is longer because a lost answer there costs more than the wait."""

    connect_s: float = 10.0
    request_s: float = 60.0
    create_s: float = 120.0


class Exchange:
    """Owns the HTTP client. `time_scale` shrinks every wait (pacing, backoff, patience) alike, not the timeouts."""

    def __init__(
        self,
        key: ApiKey | None,
        *,
        base_url: str,
        transport: httpx.AsyncBaseTransport | None,
        timeouts: Timeouts,
        time_scale: float,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """Raises UsageError for an address that would show the key, VastUnavailable for an unusable proxy setting."""
        self.base_url = _checked_url(base_url)
        self._key = key
        self._timeouts = timeouts
        self._scale = time_scale
        self._now = now
        self._sleep = sleep
        self._pacer = Pacer(time_scale)
        try:
            # A service on this machine is asked directly, whatever proxies the environment names.
            away = self.base_url.startswith("https:")
            self._http = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=away)
        except (ImportError, ValueError) as error:  # a proxy variable that httpx cannot use
            raise VastUnavailable(f"the proxy settings cannot be used: {error}") from error

    async def close(self) -> None:
        await self._http.aclose()

    async def answer(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json_body: Mapping[str, Any] | None = None,
        patience_s: float,
        try_again: frozenset[FailureKind],
        on_send: Callable[[], None] = lambda: None,
        require_success: bool = False,
    ) -> dict[str, Any] | Failure:
        """One answer, after as many paced tries as `patience_s` and `try_again` allow.

        `on_send` is called right before each request goes out. `require_success`: only an answer that says that it was
        done is one.
        """
        give_up_at = self._now() + patience_s * self._scale
        tries = 0
        while True:
            await self._wait_for_turn(call)
            on_send()
            started = self._now()
            answer = await self._once(call, method, path, params, json_body, require_success)
            tries += 1
            outcome = f"{answer.kind.value} ({answer.message})" if isinstance(answer, Failure) else "ok"
            log.debug("vast.ai: %s %s, try %d: %s after %.2f s", call, path, tries, outcome, self._now() - started)
            if not isinstance(answer, Failure):
                return answer
            limited = answer.kind is FailureKind.RATE_LIMITED
            pause_s = self._pacer.backoff_s(call, tries, limited=limited, asked_s=answer.wait_s)
            if answer.kind in PASSING:
                self._pacer.hold(call, self._now() + pause_s)
            if answer.kind not in try_again or self._now() + pause_s > give_up_at:
                return answer

    async def fetch(self, url: str, *, patience_s: float) -> bytes | None:
        """What lies at a foreign address, asked for without the key until it is there; None when it never was.

        Neither 403 nor 404 means more than "not yet" at a place that is still being filled.
        """
        give_up_at = self._now() + patience_s * self._scale
        pause_s = 1.0
        while True:
            timeout_s = min(self._timeouts.request_s, max(5.0, give_up_at - self._now()))
            request = self._http.build_request("GET", url, headers=_headers(), timeout=self._timeout(timeout_s))
            answer = await self._send(request, timeout_s)
            # Not the address: whoever has it can read what lies there.
            said = answer.message if isinstance(answer, Failure) else f"status {answer.status_code}"
            log.debug("vast.ai: the place of an upload: %s", said)
            if not isinstance(answer, Failure) and answer.status_code == 200:
                return answer.content
            if self._now() + pause_s * self._scale > give_up_at:
                return None
            await self._sleep(pause_s * self._scale)
            pause_s = 2.0

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
        require_success: bool,
    ) -> dict[str, Any] | Failure:
        timeout_s = self._timeouts.create_s if call is Call.CREATE else self._timeouts.request_s
        request = self._http.build_request(
            method,
            self.base_url + path,
            params=params,
            json=json_body,
            headers=_headers() | (self._key.authorization() if self._key is not None else {}),
            timeout=self._timeout(timeout_s),
        )
        response = await self._send(request, timeout_s)
        if isinstance(response, Failure):
            return response
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = read_answer(call, response.status_code, headers, response.content)
        waits = {name: headers[name] for name in _WAIT_HEADERS if name in headers}
        log.debug(
            "vast.ai: %s answered %d, %d bytes %s", call, response.status_code, len(response.content), waits or ""
        )
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

    def _timeout(self, timeout_s: float) -> httpx.Timeout:
        return httpx.Timeout(timeout_s, connect=self._timeouts.connect_s)

    def _hide(self, text: str) -> str:
        return self._key.hide_in(text) if self._key is not None else text


_WAIT_HEADERS = ("retry-after", "x-ratelimit-reset")


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
        remedy = "Correct --vast-url."
        if ":/" not in url and not url.startswith(("http:", "https:")):
            remedy = f"Put http:// in front for a service of this machine (http://{url}), else https://."
        raise UsageError(f"{url!r} is not the address of a web service", remedy=remedy)
    parts = httpx.URL(url)
    if parts.userinfo or parts.query or parts.fragment:
        raise UsageError(
            f"--vast-url has more than the address of a service, {parts.scheme}://{parts.host}",
            remedy="Leave out names, passwords and what follows a ? or #; the key is given apart.",
        )
    if not is_private(url):
        raise UsageError(
            f"{url} is not protected on the way, and the key would be readable", remedy="Use an https address."
        )
    return url.rstrip("/")


def _headers() -> dict[str, str]:
    return {"User-Agent": f"pp-smoke-run/{__version__}", "Accept": "application/json, text/plain, */*"}


def _reason(error: BaseException) -> str:
    text = without_stop(str(error)) or type(error).__name__
    return "the time for it has passed" if isinstance(error, TimeoutError | httpx.TimeoutException) else text[:200]


async def _read(response: httpx.Response) -> bytes | None:
    """The body; None when it is longer than any answer of this service."""
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > _MAX_ANSWER_BYTES:
            return None
    return bytes(data)
