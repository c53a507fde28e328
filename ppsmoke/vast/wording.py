"""A failed call in words for the user: which error it is, and what to do."""

from __future__ import annotations

from datetime import UTC, datetime

from ppsmoke.errors import (
    CreateFailed,
    VastCreditTooLow,
    VastFailed,
    VastKeyRejected,
    VastRateLimited,
    VastRequestRefused,
    VastUnavailable,
)
from ppsmoke.vast.answers import NOT_EXECUTED, Call, Failure, FailureKind
from ppsmoke.vast.place import DEFAULT_URL

_EXPIRED = "Log in again with the vast.ai command line, or use a key that needs no second factor."
_EMULATOR = "Start what is to answer there, as the emulator, or correct --vast-url."
_SCOPE = "Give the key the rights misc, instance_read, instance_write and user_read."
_ONE_RUN_WIDE = frozenset(
    {FailureKind.KEY, FailureKind.CREDIT, FailureKind.REFUSED, FailureKind.QUOTA, FailureKind.GONE}
)


def failed(call: Call, failure: Failure, instance_id: int | None = None, *, url: str = DEFAULT_URL) -> VastFailed:
    """The error of a call to `url` that can be repeated."""
    where = f" of instance {instance_id}" if instance_id is not None else ""
    said = f"{call}{where}: {failure.message}"
    match failure.kind:
        case FailureKind.KEY:
            return VastKeyRejected(f"vast.ai does not accept the key ({said})", remedy=_key_remedy(failure), phase=call)
        case FailureKind.CREDIT:
            return VastCreditTooLow(f"the vast.ai account cannot pay ({said})", phase=call)
        case FailureKind.REFUSED | FailureKind.GONE | FailureKind.OFFER_GONE:
            return VastRequestRefused(f"vast.ai refuses the request ({said})", phase=call)
        case FailureKind.RATE_LIMITED:
            return VastRateLimited(f"vast.ai gets too many requests from this account ({said})", phase=call)
        case FailureKind.QUOTA:
            return VastRateLimited(
                f"the account's searches for today are used up ({said})", remedy=_quota_remedy(failure), phase=call
            )
        case FailureKind.UNSENT:
            if url == DEFAULT_URL:
                return VastUnavailable(f"vast.ai cannot be reached ({said})", phase=call)
            return VastUnavailable(f"{url} cannot be reached ({said})", remedy=_EMULATOR, phase=call)
        case FailureKind.UNANSWERED:
            return VastUnavailable(f"vast.ai did not answer ({said})", phase=call)
        case FailureKind.UNREADABLE:
            return VastUnavailable(f"vast.ai answered in a way that proves nothing ({said})", phase=call)


def create_failed(offer_id: int, failure: Failure) -> CreateFailed:
    """The error of a create, with what is known of its effect."""
    made = failure.created_instance_id
    if made is not None:
        note = f", yet instance {made} was made"
    elif failure.kind in NOT_EXECUTED:
        note = ""
    else:
        note = "; whether an instance was made is not known"
    cause = failed(Call.CREATE, failure)
    error = CreateFailed(
        f"renting offer {offer_id} failed: {failure.message}{note}",
        outcome="created" if made is not None else "not_created" if failure.kind in NOT_EXECUTED else "unknown",
        created_instance_id=made,
        try_another=failure.kind not in _ONE_RUN_WIDE,
        remedy=cause.remedy,
        phase=Call.CREATE,
    )
    error.__cause__ = cause
    return error


def _key_remedy(failure: Failure) -> str | None:
    text = failure.message.lower()
    if "session expired" in text or "two factor" in text:
        return _EXPIRED
    return _SCOPE if failure.status == 403 else None


def _quota_remedy(failure: Failure) -> str:
    if failure.quota_resets_at is None:
        return "Try again after midnight UTC."
    at = datetime.fromtimestamp(failure.quota_resets_at, UTC)
    return f"Try again after {at:%Y-%m-%d %H:%M} UTC."
