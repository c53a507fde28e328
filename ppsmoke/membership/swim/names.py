"""Who holds which name, as far as we know.

Every member writes only its own claims, each with a stamp; of two present members that claim the same name, the one
with the higher (incarnation, version) holds it. A writer stamps above everything it has seen for the name, so that the
last writer wins. A claim counts while its owner is alive or suspect, in the life in which it was made. The name's value
is the owner's address: it stands once, in the member record, so that a new address needs no new names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.api import NameChanged
from ppsmoke.membership.swim.broadcast import Broadcasts
from ppsmoke.membership.swim.config import MAX_NAME_BYTES
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.table import MAX_JUMP
from ppsmoke.membership.swim.wire import NameRecord

DIGEST_BYTES = 8


class NameBook:
    """Claims by name and owner, and who holds each name at the moment. `news`: claims to be passed on."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._claims: dict[str, dict[str, NameRecord]] = {}
        self._by_owner: dict[str, set[str]] = {}
        self._holders: dict[str, str] = {}
        self._held: dict[str, frozenset[str]] = {}
        self._count = 0
        self._digest: bytes | None = None
        self.news = Broadcasts(core.config.retransmit_mult, core.config.retransmit_floor)

    @property
    def holders(self) -> Mapping[str, str]:
        """Node ids by name."""
        return self._holders

    def held_by(self, node_id: str) -> frozenset[str]:
        return self._held.get(node_id, frozenset())

    def write(self, name: str, *, held: bool) -> list[NameChanged]:
        """Our own claim to `name`, or the end of it. Raises ValueError when it is not ours to claim."""
        me = self._core.me
        mine = self._claims.get(name, {}).get(me.node_id)
        if (mine is not None and mine.held) == held:
            return []
        if held:
            self._check(name)
        return self._store(self._stamped(name, held))

    def own(self) -> list[NameRecord]:
        """What we have written ourselves, in order."""
        me = self._core.me.node_id
        return [self._claims[name][me] for name in sorted(self._by_owner.get(me, ()))]

    def hear(self, record: NameRecord, sender: str) -> list[NameChanged]:
        """`sender` passes on a claim."""
        owner = self._core.table.get(record.owner)
        if owner is None or owner.life != record.life:
            return []
        known = self._claims.get(record.name, {}).get(record.owner)
        if known is not None and record.stamp <= known.stamp:
            return []
        if record.owner == self._core.me.node_id:
            return self._contradict(record, known, sender)
        if not self._is_credible(record, known, sender, owner.stage_index):
            return []
        return self._store(record)

    def refresh(self, owner: str) -> list[NameChanged]:
        """The owner's record has changed: who holds its names now?"""
        self._digest = None
        return [change for name in sorted(self._by_owner.get(owner, ())) for change in self._elect(name)]

    def forget_owner(self, owner: str) -> list[NameChanged]:
        """Its claims were made in another life, or it is forgotten itself."""
        changes = []
        for name in sorted(self._by_owner.pop(owner, ())):
            self.news.drop((name, owner))
            claims = self._claims[name]
            del claims[owner]
            self._count -= 1
            changes += self._elect(name)
            if not claims:
                del self._claims[name]
        self._digest = None
        return changes

    def digest(self) -> bytes:
        """Of all claims that count: two members with the same claims have the same digest."""
        if self._digest is None:
            hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
            for record in self.records("", ""):
                hashed.update(wire.encode_name(record))
            self._digest = hashed.digest()
        return self._digest

    def records(self, first: str, last: str) -> list[NameRecord]:
        """The claims that count, from the name `first` to `last` (empty: to the end), in order."""
        return [
            record
            for name in sorted(self._claims)
            if name >= first and (not last or name <= last)
            for _, record in sorted(self._claims[name].items())
            if self._counts(record)
        ]

    def newer(self, theirs: Iterable[NameRecord], first: str, last: str) -> list[NameRecord]:
        """Ours between two names that are not among `theirs`, or are newer there."""
        stamps = {(record.name, record.owner): record.stamp for record in theirs}
        nothing = (-1, -1)
        return [
            record
            for record in self.records(first, last)
            if record.stamp > stamps.get((record.name, record.owner), nothing)
        ]

    # ---- writing

    def _check(self, name: str) -> None:
        if not wire.is_name(name):
            raise ValueError(f"{name!r} is no name: 1 to {MAX_NAME_BYTES} of a-z, 0-9 and -")
        me = self._core.me
        refusal = self._core.config.may_hold(name, me.stage_index)
        if refusal is not None:
            raise ValueError(refusal)
        if not self._has_room(name, me.node_id):
            raise ValueError(f"{name} is one name too many")

    def _stamped(self, name: str, held: bool, above: tuple[int, int] = (0, 0)) -> NameRecord:
        me = self._core.me
        seen = [record.stamp for record in self._claims.get(name, {}).values()]
        incarnation, version = max([above, *seen])
        if me.incarnation > incarnation:
            incarnation, version = me.incarnation, 0
        return NameRecord(name, me.node_id, me.life, incarnation, min(version + 1, wire.MAX_COUNT), held)

    def _contradict(self, record: NameRecord, known: NameRecord | None, sender: str) -> list[NameChanged]:
        """Somebody says that we have written what we have not: write again, above it."""
        self._core.note(sender, "forged", f"says of us what we have not said about the name {record.name}")
        if _jumps(record, known) or not self._has_room(record.name, record.owner):
            return []
        above = self._stamped(record.name, known is not None and known.held, record.stamp)
        return self._store(above)

    def _is_credible(self, record: NameRecord, known: NameRecord | None, sender: str, stage: int | None) -> bool:
        refusal = self._core.config.may_hold(record.name, stage)
        if refusal is not None:
            self._core.note(sender, "name", refusal)
            return False
        if sender != record.owner and _jumps(record, known):
            self._core.note(sender, "jump", f"has the name {record.name} at version {record.version}")
            return False
        if known is None and not self._has_room(record.name, record.owner):
            self._core.note(sender, "full", "more names than can be kept")
            return False
        return True

    def _has_room(self, name: str, owner: str) -> bool:
        config = self._core.config
        names = self._by_owner.get(owner, set())
        return name in names or (len(names) < config.max_names_per_member and self._count < config.max_names)

    def _store(self, record: NameRecord) -> list[NameChanged]:
        claims = self._claims.setdefault(record.name, {})
        if record.owner not in claims:
            self._count += 1
        claims[record.owner] = record
        self._by_owner.setdefault(record.owner, set()).add(record.name)
        self._digest = None
        self.news.put((record.name, record.owner), "", wire.encode_name(record))
        return self._elect(record.name)

    # ---- who holds it

    def _counts(self, record: NameRecord) -> bool:
        owner = self._core.table.get(record.owner)
        return owner is not None and owner.is_present and owner.life == record.life

    def _elect(self, name: str) -> list[NameChanged]:
        before = self._holders.get(name)
        claims = [record for record in self._claims.get(name, {}).values() if record.held and self._counts(record)]
        best = max(claims, key=lambda record: (record.stamp, record.owner), default=None)
        after = None if best is None else best.owner
        if before == after:
            return []
        if before is not None:
            rest = self._held.pop(before) - {name}
            if rest:
                self._held[before] = rest
        if after is None:
            del self._holders[name]
        else:
            self._holders[name] = after
            self._held[after] = self._held.get(after, frozenset()) | {name}
        return [NameChanged(name, before, after)]


def _jumps(record: NameRecord, known: NameRecord | None) -> bool:
    """Whether hearsay is further ahead of what is known than an honest writer gets."""
    incarnation, version = (0, 0) if known is None else known.stamp
    return record.incarnation > incarnation + MAX_JUMP or record.version > version + MAX_JUMP
