"""What an answer of vast.ai means. Pure: status, headers and bytes in, a body or a failure out.

The status alone says little: a wrong key may come as 404, an offer that is gone as 200, 400, 404 or 410, and a
gateway's page as anything. So an answer is judged by the code and the words in its body first, by its status last, and
what is not recognised is `unreadable`, never "there is nothing".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ppsmoke.wording import one_line


class Call(StrEnum):
    """The calls this tool makes; each has a rate limit of its own."""

    SEARCH = "search"
    CREATE = "create"
    SHOW = "show"
    LIST = "list"
    DESTROY = "destroy"
    REQUEST_LOGS = "request logs"
    ACCOUNT = "account"


class FailureKind(StrEnum):
    """Why a call failed."""

    KEY = "key"  # wrong, deleted, expired, or without the right
    OFFER_GONE = "offer_gone"  # or not to be had now
    CREDIT = "credit"  # none left, or a spending limit
    REFUSED = "refused"  # a wrong request: repeating it changes nothing
    RATE_LIMITED = "rate_limited"  # not executed
    QUOTA = "quota"  # of searches, used up for today
    GONE = "gone"  # there is no such instance
    UNREADABLE = "unreadable"  # 5xx, a web page, an empty or unknown answer: what it did is not known
    UNSENT = "unsent"  # no connection: nothing was sent
    UNANSWERED = "unanswered"  # sent, wholly or in part, and no answer came: what it did is not known


NOT_EXECUTED = frozenset(
    {
        FailureKind.KEY,
        FailureKind.OFFER_GONE,
        FailureKind.CREDIT,
        FailureKind.REFUSED,
        FailureKind.RATE_LIMITED,
        FailureKind.QUOTA,
        FailureKind.GONE,
        FailureKind.UNSENT,
    }
)
"""Failures after which the call is known to have had no effect, unless the answer names an instance it made."""

PASSING = frozenset({FailureKind.RATE_LIMITED, FailureKind.UNREADABLE, FailureKind.UNSENT, FailureKind.UNANSWERED})
"""Failures that another try may not meet."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`message`: the service's words, short and on one line. `wait_s`: how long it asks to be left alone."""

    kind: FailureKind
    message: str
    status: int | None = None
    wait_s: float | None = None
    quota_resets_at: float | None = None  # seconds since the epoch
    created_instance_id: int | None = None  # a failed create may have made one all the same


_MESSAGE_CHARS = 200
_MAX_WAIT_S = 60.0
_THRESHOLD = re.compile(r"threshold\s*=\s*(\d+(?:\.\d+)?)")
_TITLE = re.compile(r"<(?:title|h1)[^>]*>([^<]+)", re.IGNORECASE)

_KEY_WORDS = ("invalid user key", "invalid api key", "session expired", "two factor authentication")
_GONE_CODES = ("no_such_instance", "not_found", "invalid_id")
_OFFER_WORDS = ("no_such_ask", "no longer available", "is not available", "currently unavailable")
_OFFER_CODES = ("no_such_ask", "resources_unavailable", "bid_too_low")
_CREDIT_WORDS = ("lacks credit", "insufficient credit")
_CREDIT_CODES = ("insufficient_credit", "spend_rate_limit")


def read_answer(call: Call, status: int, headers: Mapping[str, str], content: bytes) -> dict[str, Any] | Failure:
    """The JSON object of a good answer, or the failure. `headers` with names in lower case."""
    body = _json_object(content)
    if body is not None and 200 <= status < 300 and body.get("success") is not False and not body.get("error"):
        return body
    code = _code(body)
    message = _message(status, body, content)
    kind = _kind(call, status, code, message.lower(), body is not None)
    return Failure(
        kind=kind,
        message=message,
        status=status,
        wait_s=_wait_s(headers, body, message) if kind is FailureKind.RATE_LIMITED else None,
        quota_resets_at=_seconds(headers.get("x-ratelimit-reset")) if kind is FailureKind.QUOTA else None,
        created_instance_id=created_instance_id(body) if call is Call.CREATE else None,
    )


def created_instance_id(body: Mapping[str, Any] | None) -> int | None:
    """The instance that an answer to a create says it made, be the answer good or bad."""
    value = body.get("new_contract") if body is not None else None
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if type(value) is int and value > 0 else None


def _kind(call: Call, status: int, code: str, text: str, is_json: bool) -> FailureKind:
    if code == "search_quota_exceeded":
        return FailureKind.QUOTA
    if status == 429 or code == "rate_limit_exceeded" or "requests too frequent" in text:
        return FailureKind.RATE_LIMITED
    if code == "auth_error" or any(words in text for words in _KEY_WORDS) or status == 401:
        return FailureKind.KEY
    if code in _CREDIT_CODES or any(words in text for words in _CREDIT_WORDS):
        return FailureKind.CREDIT
    if call is Call.CREATE and (code in _OFFER_CODES or any(words in text for words in _OFFER_WORDS)):
        return FailureKind.OFFER_GONE
    if call in (Call.SHOW, Call.DESTROY, Call.REQUEST_LOGS) and code in _GONE_CODES:
        return FailureKind.GONE
    if status == 403 and is_json:
        return FailureKind.REFUSED if "rent their own machines" in text else FailureKind.KEY
    if code == "deprecated_endpoint" or (status in (400, 422) and is_json):
        return FailureKind.REFUSED
    if call is Call.REQUEST_LOGS and status == 200 and is_json:
        return FailureKind.REFUSED  # there are none, and the words say why
    return FailureKind.UNREADABLE


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _code(body: Mapping[str, Any] | None) -> str:
    value = body.get("error") if body is not None else None
    return value.strip().lower() if isinstance(value, str) else ""


def _message(status: int, body: Mapping[str, Any] | None, content: bytes) -> str:
    if body is not None:
        texts = [body.get(name) for name in ("error", "msg", "message", "detail")]
        found = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
        return _one_line(": ".join(dict.fromkeys(found)) or f"an answer without a reason (status {status})")
    text = content[:20_000].decode(errors="replace").strip()
    if not text:
        return f"an empty answer (status {status})"
    if text.startswith("<"):
        title = _TITLE.search(text)
        return _one_line(f"a web page (status {status})" + (f": {title[1].strip()}" if title else ""))
    return _one_line(text)


def _one_line(text: str) -> str:
    return one_line(text, _MESSAGE_CHARS)


def _wait_s(headers: Mapping[str, str], body: Mapping[str, Any] | None, message: str) -> float | None:
    """The longest of what the header, the body and the words ask for, bounded; dates are not understood."""
    threshold = _THRESHOLD.search(message)
    asked = [
        _seconds(headers.get("retry-after")),
        _seconds(body.get("retry_after")) if body is not None else None,
        _seconds(threshold[1]) if threshold else None,
    ]
    known = [seconds for seconds in asked if seconds is not None]
    return min(max(known), _MAX_WAIT_S) if known else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e12 else None
