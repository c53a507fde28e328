"""Why a connection closed: the codes we close with, and what the other side's library reports. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class CloseCode(IntEnum):
    """Application close codes of a connection; the reason travels beside the code."""

    DROPPED = 0
    LEFT = 1
    SILENT = 2
    REPLACED = 3
    REFUSED = 4
    PROTOCOL = 5
    SUPERSEDED = 6
    BROKEN = 7


MAY_BE_HAD_AGAIN = frozenset({CloseCode.DROPPED, CloseCode.REPLACED, CloseCode.BROKEN})
"""Ends that say nothing against the peer: a new connection to it may serve."""


@dataclass(frozen=True, slots=True)
class PeerClose:
    code: int
    reason: str


_AS_STATUS = re.compile(r"closed by peer: (?P<reason>.*) \(code (?P<code>\d+)\)$", re.DOTALL)
_BARE_STATUS = re.compile(r"closed by peer: (?P<code>\d+)$")


def peer_close(status: str | None) -> PeerClose | None:
    """What the peer said when it closed, from the connection's close status; None when it said nothing."""
    if status is None:
        return None
    if found := _AS_STATUS.search(status):
        return PeerClose(int(found["code"]), found["reason"])
    if found := _BARE_STATUS.search(status):
        return PeerClose(int(found["code"]), "")
    return None


def loss_text(status: str | None) -> str:
    """How a connection ended, for a sentence like "the link to stage 2 ended: ..."."""
    closed = peer_close(status)
    if closed is None:
        return "it timed out" if status and "timed out" in status else "the connection closed"
    if closed.reason:
        return closed.reason
    return "the process went away" if closed.code == CloseCode.DROPPED else f"closed with code {closed.code}"


def may_be_had_again(status: str | None) -> bool:
    """Whether a connection with this close status ended for a reason that another one need not meet."""
    closed = peer_close(status)
    return status is not None and (closed is None or closed.code in MAY_BE_HAD_AGAIN)
