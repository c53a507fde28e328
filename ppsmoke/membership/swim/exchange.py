"""Comparing all that is known with one other member: on joining, now and then, and with one that is back.

Gossip may fail to reach somebody; this cannot for long. A comparison lists what one member knows of a window of the
node ids, without addresses, in one datagram, and the window moves on with each: the load is the same in every cluster's
size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.api import Joined, JoinRefused
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.members import Members
from ppsmoke.membership.swim.table import Record, beats
from ppsmoke.membership.swim.wire import Claim, Compare, Kind

_FIRST, _LAST = "0" * 64, "f" * 64
_ANSWERS = 4
"""The most messages that one comparison or question is answered with."""


class Exchange:
    """Joining and comparing."""

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self._seeds: tuple[str, ...] = ()
        self._next_join = math.inf
        self._is_joining = False
        self._has_joined = False
        self._cursor = _FIRST
        self._next_compare = core.now + core.rng.random() * core.config.exchange_interval_s

    def deadline(self) -> float:
        return min(self._next_join, self._next_compare)

    def tick(self) -> None:
        core = self._core
        if self._next_join <= core.now:
            self._ask_to_join()
        if self._next_compare <= core.now:
            self._next_compare = core.now + core.config.exchange_interval_s
            self._members.forget_old()
            for record in core.table.sample(1):
                self.compare(record)
            if not core.table.present and self._has_joined and self._seeds:
                self._next_join = core.now

    # ---- joining

    def join(self, seeds: Sequence[str]) -> None:
        self._seeds = tuple(seed for seed in seeds if seed != self._core.me.node_id)
        if not self._seeds:
            self._welcome()
            return
        self._is_joining = True
        self._ask_to_join()

    def hear_join(self, sender: str, claims: Sequence[Claim], incarnation: int) -> None:
        """Somebody wants in: refuse with the reason, or tell everything."""
        core = self._core
        if len(claims) != 1 or claims[0].node_id != sender or claims[0].address is None:
            core.note(sender, "malformed", "a join without the sender's own record")
            return
        refusal = core.config.admit(sender, claims[0].stage_index)
        if refusal is not None:
            core.note_refused(sender, refusal)
        elif core.table.get(sender) is None and not self._members.make_room():
            refusal = f"there are {core.config.max_members} members already"
            core.note(sender, "full", refusal)
        if refusal is not None:
            self.refuse(sender, refusal)
            return
        known = core.table.get(sender)
        if known is not None and not core.may_tell(known):
            return
        self._members.hear(claims[0], sender, incarnation, Kind.JOIN)
        everything = [record.claim() for record in core.table]
        core.send_all(sender, Kind.WELCOME, everything, reliable=True, most=len(everything))

    def refuse(self, sender: str, reason: str) -> None:
        self._core.send(sender, Kind.REFUSE, wire.encode_refusal(reason), reliable=True)

    def hear_welcome(self, sender: str) -> bool:
        """Whether that was the answer to our join."""
        is_answer = self._is_joining and sender in self._seeds
        if is_answer:
            self._welcome()
        return is_answer

    def hear_refusal(self, sender: str, reason: str) -> None:
        if self._is_joining and sender in self._seeds:
            self._is_joining = False
            self._next_join = math.inf
            self._core.emit(JoinRefused(sender, reason))

    # ---- comparing

    def compare(self, record: Record) -> None:
        """List what we know from the cursor on; the rest another time."""
        room = wire.ROOM - wire.COMPARE_BYTES
        listed: list[Claim] = []
        first, last = self._cursor, _LAST
        for known in sorted((one for one in self._core.table if one.node_id >= first), key=_node_id):
            claim = known.claim(with_address=False)
            room -= wire.claim_bytes(claim)
            if room < 0:
                last = listed[-1].node_id
                break
            listed.append(claim)
        self._cursor = _FIRST if last == _LAST else _successor(last)
        self._core.send(record.node_id, Kind.COMPARE, wire.encode_compare(first, last), claims=listed)

    def hear_compare(self, sender: str, window: Compare, listed: Sequence[Claim]) -> None:
        """Tell what we know better. What the sender knows better was heard already."""
        theirs = {claim.node_id: claim for claim in listed}
        better = [
            record.claim()
            for record in self._core.table
            if window.first <= record.node_id <= window.last and _is_better(record, theirs.get(record.node_id))
        ]
        self._core.send_all(sender, Kind.NEWS, better, most=_ANSWERS)

    def ask(self, questions: Sequence[tuple[str, str]]) -> None:
        """(whom, about whom); what cannot be asked now will come up again."""
        for whom in dict.fromkeys(whom for whom, _ in questions):
            if self._core.may_ask(self._core.table.get(whom)):
                about = list(dict.fromkeys(about for asked, about in questions if asked == whom))
                self._core.send(whom, Kind.ASK, wire.encode_ask(about))

    def hear_ask(self, sender: str, node_ids: Sequence[str]) -> None:
        known = (self._core.table.get(node_id) for node_id in dict.fromkeys(node_ids))
        claims = [record.claim() for record in known if record is not None]
        self._core.send_all(sender, Kind.NEWS, claims, most=_ANSWERS)

    # ---- helpers

    def _welcome(self) -> None:
        self._is_joining = False
        self._next_join = math.inf
        if not self._has_joined:
            self._has_joined = True
            self._core.emit(Joined())

    def _ask_to_join(self) -> None:
        core = self._core
        self._next_join = core.now + core.config.join_retry_s if self._is_joining else math.inf
        for seed in self._seeds:
            core.send(seed, Kind.JOIN, claims=(core.me.claim(),), reliable=True)


def _is_better(record: Record, theirs: Claim | None) -> bool:
    """Whether what we have is news for one that has listed `theirs`. That somebody is gone is none for one that has
    forgotten it."""
    if theirs is None:
        return record.is_present
    return beats(record.state, record.incarnation, theirs.state, theirs.incarnation)


def _node_id(record: Record) -> str:
    return record.node_id


def _successor(node_id: str) -> str:
    return f"{int(node_id, 16) + 1:064x}"
