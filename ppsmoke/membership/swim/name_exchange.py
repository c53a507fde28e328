"""Names travel on their own, never on probes: fresh claims by gossip, everything else by comparing digests.

As long as two members have the same claims, a comparison is one datagram with eight bytes of digest.
"""

from __future__ import annotations

from collections.abc import Iterable

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.config import MAX_NAME_BYTES
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.names import NameBook
from ppsmoke.membership.swim.table import Record
from ppsmoke.membership.swim.wire import Kind, NameRecord, Names

_MAX_MESSAGES = 4
"""The most that one comparison is answered with; where there are more names, the next comparison goes on from there."""

_ANNOUNCED = 10

_ANNOUNCED = 10
"""How many are told of our own claims at once."""

_EDGES_BYTES = 1 + 2 * (1 + MAX_NAME_BYTES)


class NameExchange:
    """Spreads the claims of a NameBook."""

    def __init__(self, core: Core, book: NameBook) -> None:
        self._core = core
        self._book = book
        self._cursor = ""
        self._next_compare = core.now + core.rng.random() * core.config.names_interval_s

    def deadline(self) -> float:
        return self._next_compare

    def tick(self) -> None:
        if self._next_compare <= self._core.now:
            self._next_compare = self._core.now + self._core.config.names_interval_s
            for record in self._core.table.sample(1):
                self.compare(record)

    def compare(self, record: Record) -> None:
        self._core.send(record.node_id, Kind.NAMES_DIGEST, self._book.digest())

    def gossip(self, to: Iterable[Record]) -> None:
        """Pass on fresh claims, if there are any."""
        for record in to:
            fresh = self._book.news.take(wire.ROOM - _EDGES_BYTES, self._core.table.size)
            if fresh:
                body = wire.encode_names(False, "", "", fresh)
                self._core.send(record.node_id, Kind.NAMES, body)

    def announce(self) -> None:
        """Tell our own claims at once: to all in a small cluster, to some in a large one. Our member record goes first,
        since a claim of an unknown owner is not kept."""
        core = self._core
        own = self._book.own()
        if not own:
            return
        _, records = self._window(own)
        for member in core.table.sample(_ANNOUNCED):
            core.send(member.node_id, Kind.NEWS, claims=(core.me.claim(),), reliable=True)
            self._send(member.node_id, records, "", "", answer=False, reliable=True)

    def hear_digest(self, sender: str, digest: bytes) -> None:
        """Where the sender's names are not ours, send ours and have the newer ones back."""
        if digest == self._book.digest():
            return
        for _ in range(_MAX_MESSAGES):
            first = self._cursor
            last, records = self._window(self._book.records(first, ""))
            self._cursor = _after(last)
            self._send(sender, records, first, last, answer=True)
            if not last:
                return

    def hear_names(self, sender: str, names: Names) -> None:
        """After its claims were heard."""
        if not names.answer:
            return
        newer = self._book.newer(names.records, names.first, names.last)
        for _ in range(_MAX_MESSAGES):
            if not newer:
                return
            _, records = self._window(newer)
            self._send(sender, records, "", "", answer=False)
            newer = newer[len(records) :]

    def _window(self, records: list[NameRecord]) -> tuple[str, list[NameRecord]]:
        """As many as fit into one message, and the name of the last of them unless these are all."""
        room = wire.ROOM - _EDGES_BYTES
        for count, record in enumerate(records):
            room -= len(wire.encode_name(record))
            if room < 0:
                return records[count - 1].name, records[:count]
        return "", records

    def _send(
        self, to: str, records: list[NameRecord], first: str, last: str, *, answer: bool, reliable: bool = False
    ) -> None:
        body = wire.encode_names(answer, first, last, map(wire.encode_name, records))
        self._core.send(to, Kind.NAMES, body, reliable=reliable)


def _after(name: str) -> str:
    """Where the next window begins; at the first name again after the last one."""
    return f"{name}-" if 0 < len(name) < MAX_NAME_BYTES else ""
