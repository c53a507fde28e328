"""The membership table: one record per member, and which of two claims about a member holds.

Higher incarnation wins; at equal incarnation left > dead > suspect > alive. (That leaving beats death at equal
incarnation lets all views agree, whatever they heard first: it is the member's own word.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from ppsmoke.membership.swim.api import MemberState, MemberView
from ppsmoke.membership.swim.rtt import RoundTrip
from ppsmoke.membership.swim.suspicion import Suspicion
from ppsmoke.membership.swim.wire import Claim

_RANK: dict[MemberState, int] = {"alive": 0, "suspect": 1, "dead": 2, "left": 3}

MAX_JUMP = 1 << 16
"""Hearsay may be so many incarnations ahead of what is known. No honest member gets there, and a member that lies
cannot use up in one message the numbers that the others need to contradict."""


def beats(state: MemberState, incarnation: int, old_state: MemberState, old_incarnation: int) -> bool:
    """Whether a claim replaces what is known. The same state at the same incarnation is no news."""
    if incarnation != old_incarnation:
        return incarnation > old_incarnation
    return _RANK[state] > _RANK[old_state]


class Record:
    """What is known of one member.

    address_at: the incarnation that `address` belongs to; under `incarnation` while the newer one is awaited.
    heard_at: when a message came from the member itself.
    told_at, asked_at: when it was last sent something that it had not asked for, and last asked something.
    detours: probes in a row that it has answered through others only.
    suspicion: while suspect. verdict: "dead" or "left" while others say so and we have yet to see for ourselves.
    revive_at: while dead, when to probe it again.
    """

    __slots__ = (
        "accuser",
        "address",
        "address_at",
        "asked_at",
        "detours",
        "heard_at",
        "incarnation",
        "life",
        "node_id",
        "reason",
        "revive_at",
        "round_trip",
        "since",
        "stage_index",
        "state",
        "suspicion",
        "told_at",
        "verdict",
    )

    def __init__(self, claim: Claim, now: float, round_trip: RoundTrip) -> None:
        self.node_id = claim.node_id
        self.state: MemberState = claim.state
        self.incarnation = claim.incarnation
        self.life = claim.life
        self.stage_index = claim.stage_index
        self.address = claim.address or b""
        self.address_at = claim.incarnation if claim.address is not None else -1
        self.round_trip = round_trip
        self.since = now
        self.heard_at = now
        self.told_at = self.asked_at = -math.inf
        self.reason = ""
        self.accuser: str | None = None
        self.suspicion: Suspicion | None = None
        self.verdict: MemberState | None = None
        self.revive_at = now
        self.detours = 0

    @property
    def is_present(self) -> bool:
        """Alive or suspect."""
        return self.state == "alive" or self.state == "suspect"

    def claim(self, *, with_address: bool = True) -> Claim:
        """What we say of it."""
        address = self.address if with_address and self.is_present and self.address_at == self.incarnation else None
        accuser = self.accuser if self.state in ("suspect", "dead") else None
        return Claim(self.node_id, self.state, self.incarnation, self.life, self.stage_index, address, accuser)

    def view(self, names: frozenset[str]) -> MemberView:
        return MemberView(
            self.node_id,
            self.state,
            self.incarnation,
            self.life,
            self.stage_index,
            self.address,
            self.round_trip.smooth_s,
            self.since,
            names,
            self.reason,
        )


class Table:
    """All records, the own one included, with the present others at hand in the order in which they are probed."""

    def __init__(self, me: Record, rng: random.Random) -> None:
        self.me = me
        self._rng = rng
        self._records: dict[str, Record] = {me.node_id: me}
        self._present: list[Record] = []
        self._order: list[Record] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def get(self, node_id: str) -> Record | None:
        return self._records.get(node_id)

    @property
    def present(self) -> list[Record]:
        """The others that are alive or suspect. Not to be changed."""
        return self._present

    @property
    def size(self) -> int:
        """Of the cluster as far as it is present, oneself included."""
        return len(self._present) + 1

    def add(self, record: Record) -> None:
        self._records[record.node_id] = record
        if record.is_present:
            self.enter(record)

    def forget(self, record: Record) -> None:
        """Of one that is not present."""
        del self._records[record.node_id]

    def enter(self, record: Record) -> None:
        """`record` has become present: it takes a random place in the round (SWIM, section 4.3)."""
        self._present.append(record)
        at = self._rng.randrange(len(self._order) + 1)
        self._order.insert(at, record)
        if at < self._next:
            self._next += 1

    def depart(self, record: Record) -> None:
        """`record` is no longer present."""
        self._present.remove(record)
        at = self._order.index(record)
        del self._order[at]
        if at < self._next:
            self._next -= 1

    def next_to_probe(self) -> Record | None:
        """Round robin over the present others, in a new random order each round. Each half of the round is shuffled by
        itself, so that nobody waits longer than one and a half rounds for its turn, where SWIM's would be two."""
        if not self._order:
            return None
        if self._next >= len(self._order):
            self._next = 0
            half = len(self._order) // 2
            first, second = self._order[:half], self._order[half:]
            self._rng.shuffle(first)
            self._rng.shuffle(second)
            self._order = first + second
        self._next += 1
        return self._order[self._next - 1]

    def sample(self, count: int, *, but: str | None = None) -> list[Record]:
        """Up to `count` present others at random, without the one named."""
        among = self._present if but is None else [record for record in self._present if record.node_id != but]
        return list(among) if len(among) <= count else self._rng.sample(among, count)
