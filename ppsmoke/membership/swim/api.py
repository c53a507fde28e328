"""What goes into a SWIM machine and what comes out of it: identities, views of members, actions. Pure data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MemberState = Literal["alive", "suspect", "dead", "left"]
"""In the order of their precedence at equal incarnation: a later one beats an earlier one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is. Never two running members with one `node_id`.

    node_id: 64 lower-case hexadecimal digits, the key that the transport has verified.
    life: any number that differs between two starts of a process with the same key, below 2**64; not ordered.
    stage_index: None for the orchestrator.
    address: all that is needed to dial, at most `MAX_ADDRESS_BYTES`; opaque here.
    """

    node_id: str
    life: int
    stage_index: int | None
    address: bytes


@dataclass(frozen=True, slots=True)
class MemberView:
    """One row of the membership table.

    incarnation: how often the member has had to contradict what was said of it, or has moved; counts across lives.
    rtt_s: the smoothed round trip in seconds, None for oneself and when none was measured.
    since: when it entered `state` in this view, on the clock that the events are stamped with.
    names: those it holds; empty unless it is alive or suspect.
    reason: why it is suspect, dead or left, in a few words for people; empty when alive.
    """

    node_id: str
    state: MemberState
    incarnation: int
    life: int
    stage_index: int | None
    address: bytes
    rtt_s: float | None
    since: float
    names: frozenset[str] = frozenset()
    reason: str = ""

    @property
    def is_present(self) -> bool:
        """Alive or suspect: a suspect counts as there until its time is up."""
        return self.state in ("alive", "suspect")


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver `data` to the member `to`; it may be without a link, and dead as far as this view knows (then it is
    being tried anew): dial, do not wait for it, drop the message when there is no way.

    reliable: False is a datagram, which may be lost, doubled or late. True is the pair's ordered stream.
    """

    to: str
    data: bytes
    reliable: bool


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A row appeared (`before` is None) or changed its state, incarnation, life, stage or address. Names and round
    trips change without it. Never about oneself, except for the own incarnation and address and for leaving."""

    before: MemberView | None
    after: MemberView


@dataclass(frozen=True, slots=True)
class NameChanged:
    """`name` is now held by the node id `after` (None: by nobody)."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Detour:
    """`peer` answers through others but not to us: the probe, its repetition on the reliable stream included, was
    answered by way of a helper only, `in_a_row` times by now. It is alive; the link to it is what seems broken."""

    peer: str
    in_a_row: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A seed has answered with its view. Comes once, and at once when there is no seed to join."""


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The seed `by` will not have us: another version, another cluster, or its admission rule. No retry follows."""

    by: str
    reason: str


class Replaced(str):
    """Why one is not admitted whose place another one has taken: nothing is wrong, it has not ended yet."""


@dataclass(frozen=True, slots=True)
class Note:
    """For the log: something is wrong with what `peer` sends. Once per peer and `reason`.

    reason: one of "malformed", "oversized", "version", "cluster", "admission", "replaced", "name", "jump", "forged",
    "full".
    """

    peer: str
    reason: str
    text: str


Action = Send | MemberChanged | NameChanged | Detour | Joined | JoinRefused | Note

AdmitRule = Callable[[str, int | None], str | None]
"""(node id, stage index) -> why this one may not be a member, or None. Also asked about hearsay."""

NameRule = Callable[[str, int | None], str | None]
"""(name, stage index of the claimed owner) -> why it may not hold the name, or None."""


def admit_all(node_id: str, stage_index: int | None) -> str | None:
    """The admission rule of a cluster whose transport lets nobody in who does not belong."""
    return None


def any_name(name: str, stage_index: int | None) -> str | None:
    """The name rule of a cluster in which everybody may hold every name."""
    return None


def cluster_tag(*secrets_and_ids: bytes) -> bytes:
    """The 8 bytes that every message of a cluster carries; keeps clusters apart, authenticates nobody."""
    digest = hashlib.sha256()
    for part in secrets_and_ids:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()[:8]
