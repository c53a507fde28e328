"""What all parts of the machine share: the table, the news, the clock's last word, and the actions being collected."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.api import Action, Identity, Note, Replaced, Send
from ppsmoke.membership.swim.awareness import Awareness
from ppsmoke.membership.swim.broadcast import Broadcasts
from ppsmoke.membership.swim.config import MAX_ADDRESS_BYTES, SwimConfig
from ppsmoke.membership.swim.rtt import RoundTrip
from ppsmoke.membership.swim.table import Record, Table
from ppsmoke.membership.swim.wire import Claim, Kind

_PIGGYBACK = frozenset((Kind.PING, Kind.ACK, Kind.PING_REQ, Kind.NACK, Kind.NEWS, Kind.WELCOME))


class Core:
    """`now` is the time of the event being handled."""

    def __init__(self, me: Identity, config: SwimConfig, rng: random.Random, now: float) -> None:
        if not wire.is_node_id(me.node_id):
            raise ValueError(f"{me.node_id!r} is no node id: 64 lower-case hexadecimal digits")
        if len(me.address) > MAX_ADDRESS_BYTES:
            raise ValueError(f"an address of {len(me.address)} bytes, the most is {MAX_ADDRESS_BYTES}")
        if me.stage_index is not None and not 0 <= me.stage_index < 1 << 15:
            raise ValueError(f"there is no stage {me.stage_index}")
        self.config = config
        self.rng = rng
        self.now = now
        own = Claim(me.node_id, "alive", 0, me.life, me.stage_index, me.address)
        self.me = Record(own, now, RoundTrip(config.round_trip_guess_s))
        self.table = Table(self.me, rng)
        self.news = Broadcasts(config.retransmit_mult, config.retransmit_floor)
        self.awareness = Awareness(config.max_awareness)
        self._actions: list[Action] = []
        self._noted: set[tuple[str, str]] = set()

    def collect(self) -> list[Action]:
        """The actions since the last call."""
        actions, self._actions = self._actions, []
        return actions

    def emit(self, action: Action) -> None:
        self._actions.append(action)

    def note(self, peer: str, reason: str, text: str) -> None:
        """Say once that something is wrong with what `peer` sends."""
        key = (peer, reason)
        if key not in self._noted and len(self._noted) < self.config.max_notes:
            self._noted.add(key)
            self.emit(Note(peer, reason, text))

    def note_refused(self, peer: str, refusal: str) -> None:
        """Say once why `peer` is not admitted."""
        self.note(peer, "replaced" if isinstance(refusal, Replaced) else "admission", refusal)

    def send(
        self, to: str, kind: Kind, body: bytes = b"", *, claims: Iterable[Claim] = (), reliable: bool = False
    ) -> None:
        """One message: `claims` for certain (they must fit), then as much news as there is room for."""
        head = wire.encode_head(
            self.config.protocol_version, self.config.cluster, kind, self.me.incarnation, self.me.life
        )
        parts = [head, body]
        room = wire.ROOM - len(body)
        said = []
        for claim in claims:
            said.append(claim.node_id)
            piece = wire.encode_claim(claim)
            room -= len(piece)
            parts.append(piece)
        if kind in _PIGGYBACK and self.news:
            parts += self.news.take(room, self.table.size, said)
        self.emit(Send(to, b"".join(parts), reliable))

    def send_all(self, to: str, kind: Kind, claims: Iterable[Claim], *, reliable: bool = False, most: int) -> None:
        """`claims` in at most `most` messages, as full as they get; nothing when there are none."""
        batch: list[Claim] = []
        room = wire.ROOM
        for claim in claims:
            size = wire.claim_bytes(claim)
            if size > room:
                self.send(to, kind, claims=batch, reliable=reliable)
                batch, room, most = [], wire.ROOM, most - 1
                if most == 0:
                    return
            batch.append(claim)
            room -= size
        if batch:
            self.send(to, kind, claims=batch, reliable=reliable)

    def spread(self, record: Record, aspect: str = "") -> None:
        """Let the news about `record` go around. A confirmation (`aspect`: who confirms) leaves the older news be."""
        if not aspect:
            self.news.drop(record.node_id)
        self.news.put(record.node_id, aspect, wire.encode_claim(record.claim()))

    def may_tell(self, record: Record) -> bool:
        """Whether it is time to send a member what it did not ask for, so that no two members keep each other busy."""
        if self.now < record.told_at + self.config.gossip_interval_s / 2:
            return False
        record.told_at = self.now
        return True

    def may_ask(self, record: Record | None) -> bool:
        """Whether it is time to ask a member something; strangers count as one."""
        asked = record or self.me
        if self.now < asked.asked_at + self.config.gossip_interval_s / 2:
            return False
        asked.asked_at = self.now
        return True
