"""News that has yet to be passed on: each piece so many times, those passed on least often first.

SWIM, section 4.1. How often follows memberlist's rule, rounded up, and with a floor: with the usual factor 4 a rounding
down leaves clusters of two and three with one and two transmissions, so that one lost packet loses an update.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable


class _Item:
    __slots__ = ("data", "sent", "serial", "subject")

    def __init__(self, subject: Hashable, data: bytes, serial: int) -> None:
        self.subject = subject
        self.data = data
        self.sent = 0
        self.serial = serial


class Broadcasts:
    """Pieces of news by (subject, aspect); a newer one replaces the older with the same key."""

    __slots__ = ("_floor", "_items", "_mult", "_serial")

    def __init__(self, mult: float, floor: int) -> None:
        self._mult = mult
        self._floor = floor
        self._items: dict[tuple[Hashable, Hashable], _Item] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, subject: Hashable, aspect: Hashable, data: bytes) -> None:
        """News about `subject`."""
        self._serial += 1
        self._items[subject, aspect] = _Item(subject, data, self._serial)

    def drop(self, subject: Hashable) -> None:
        """Whatever was said about `subject` is overtaken."""
        for key in [key for key in self._items if key[0] == subject]:
            del self._items[key]

    def take(self, room: int, members: int, skip: Iterable[Hashable] = ()) -> list[bytes]:
        """Pieces of at most `room` bytes together, least sent first and newer before older; counts them as sent once.

        members: the cluster's size, which bounds how often each is sent. skip: subjects to leave out this time.
        """
        if not self._items:
            return []
        limit = transmissions(members, self._mult, self._floor)
        taken: list[bytes] = []
        for key, item in sorted(self._items.items(), key=_least_sent_first):
            if len(item.data) > room or item.subject in skip:
                continue
            room -= len(item.data)
            taken.append(item.data)
            item.sent += 1
            if item.sent >= limit:
                del self._items[key]
        return taken


def transmissions(members: int, mult: float, floor: int) -> int:
    """How often one member passes on a piece of news in a cluster of `members`."""
    return max(floor, math.ceil(mult * math.ceil(math.log10(members + 1))))


def _least_sent_first(entry: tuple[tuple[Hashable, Hashable], _Item]) -> tuple[int, int]:
    item = entry[1]
    return item.sent, -item.serial
