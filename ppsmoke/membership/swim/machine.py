"""One member's view of the cluster: the SWIM machine. Events in, actions out; no sockets, no clock, no asyncio.

The times given to successive events must not go back. Every event returns the actions to perform, in their order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.api import Action, Identity, MemberView, NameChanged
from ppsmoke.membership.swim.config import MAX_ADDRESS_BYTES, SwimConfig
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.exchange import Exchange
from ppsmoke.membership.swim.members import Members
from ppsmoke.membership.swim.name_exchange import NameExchange
from ppsmoke.membership.swim.names import NameBook
from ppsmoke.membership.swim.probe import Detector
from ppsmoke.membership.swim.table import Record
from ppsmoke.membership.swim.wire import Ask, Compare, Kind, Message, Names, Ping, PingReq

_T = TypeVar("_T")


class Swim:
    """Create it, `join`, and from then on hand in what comes and `tick` when `deadline` is reached.

    rng: the only source of chance; one per machine, so that a run can be replayed.
    now: seconds on any clock that never goes back (but stands still for nobody: a paused process must see that time
    has passed, or it will not know that it was away).
    """

    def __init__(self, me: Identity, config: SwimConfig, rng: random.Random, now: float) -> None:
        core = Core(me, config, rng, now)
        self._core = core
        self._names = NameBook(core)
        self._members = Members(core, self._names)
        self._detector = Detector(core, self._members)
        self._exchange = Exchange(core, self._members)
        self._name_exchange = NameExchange(core, self._names)
        self._next_gossip = now
        self._has_left = False
        self._due = math.inf
        self._excused = now

    # ---- events

    def join(self, seeds: Sequence[str], now: float) -> list[Action]:
        """Ask the members `seeds` (node ids that can be sent to already) for their view, until one answers.

        Ends with `Joined` or `JoinRefused`, from this or a later event; never gives up by itself. With no seeds one
        is the first member, and joined at once.
        """
        if not self._begin(now):
            return []
        self._exchange.join(seeds)
        return self._end()

    def receive(self, sender: str, data: bytes, now: float) -> list[Action]:
        """One message from a peer whose node id the transport has verified. Never raises, whatever `data` is."""
        if sender == self._core.me.node_id or not wire.is_node_id(sender) or not self._begin(now):
            return []
        config = self._core.config
        try:
            message = wire.decode(data, config.protocol_version, config.cluster)
        except wire.WireError as error:
            self._core.note(sender, error.reason, str(error))
            if error.kind == Kind.JOIN:
                self._exchange.refuse(sender, str(error))
        else:
            self._handle(sender, message)
        return self._end()

    def tick(self, now: float) -> list[Action]:
        """Do what is due. Call it at `deadline` or as soon after as possible; too early is harmless.

        Any event that comes more than `late_s` after the deadline shows that this process was starved or stopped: what
        others seem to have missed meanwhile is not held against them (all waits are prolonged by the delay), and the
        own health score rises.
        """
        if not self._begin(now):
            return []
        self._members.end_suspicions()
        self._detector.tick()
        self._exchange.tick()
        self._name_exchange.tick()
        self._gossip()
        return self._end()

    def deadline(self) -> float:
        """When `tick` wants to be called next; changes with every event. Infinite before `join` and after `leave`."""
        return self._due

    def link_up(self, peer: str, now: float) -> list[Action]:
        """A connection with `peer` came up, whoever opened it. One thought dead is probed at once."""
        record = self._core.table.get(peer)
        if record is None or record.state != "dead" or not self._begin(now):
            return []
        self._detector.call(record)
        return self._end()

    def link_down(self, peer: str, now: float, *, left: bool) -> list[Action]:
        """The connection with `peer` closed. A hint: it is probed at once. With `left` it said goodbye: it has left."""
        record = self._core.table.get(peer)
        if record is None or record is self._core.me or not self._begin(now):
            return []
        if left:
            self._members.goodbye(record)
        elif record.is_present:
            self._detector.probe_now(record)
        return self._end()

    def round_trip(self, peer: str, rtt_s: float, now: float) -> list[Action]:
        """A round trip to `peer` measured elsewhere, such as the path's in QUIC."""
        record = self._core.table.get(peer)
        if record is None or record is self._core.me or not self._begin(now):
            return []
        record.round_trip.sample(rtt_s)
        return self._end()

    def register(self, name: str, now: float) -> list[Action]:
        """Hold `name` from now on. Its value is the own address, which others find in the own member record.

        Raises ValueError when it is no name (`[a-z0-9-]`, 1 to 64 bytes), when the rule forbids it, or when these are
        too many. Holding it already is fine.
        """
        return self._write(name, now, held=True)

    def unregister(self, name: str, now: float) -> list[Action]:
        """Give `name` up. Not holding it is fine."""
        return self._write(name, now, held=False)

    def update_address(self, address: bytes, now: float) -> list[Action]:
        """The own address has changed. Raises ValueError when it is over MAX_ADDRESS_BYTES."""
        if len(address) > MAX_ADDRESS_BYTES:
            raise ValueError(f"an address of {len(address)} bytes, the most is {MAX_ADDRESS_BYTES}")
        me = self._core.me
        if address == me.address or not self._begin(now):
            return []
        self._members.move(address)
        return self._end()

    def leave(self, now: float) -> list[Action]:
        """Say goodbye to all. Deliver these messages; nothing comes out of the machine any more."""
        if not self._begin(now):
            return []
        self._members.leave()
        self._has_left = True
        self._due = math.inf
        return self._core.collect()

    # ---- reading

    def members(self) -> Mapping[str, MemberView]:
        """The table as of the last event, oneself and the remembered dead included. Made anew by each call."""
        return {record.node_id: self._view(record) for record in self._core.table}

    def view(self, node_id: str) -> MemberView | None:
        """One row of the table."""
        record = self._core.table.get(node_id)
        return None if record is None else self._view(record)

    def resolve(self, name: str) -> MemberView | None:
        """Who holds `name`: alive or suspect, None when nobody does."""
        holder = self._names.holders.get(name)
        return None if holder is None else self.view(holder)

    def names(self) -> Mapping[str, str]:
        """Every name that is held, and the node id of its holder."""
        return dict(self._names.holders)

    def health(self) -> int:
        """The local health score: 0 is healthy, `max_awareness` is the worst."""
        return self._core.awareness.score

    # ---- around every event

    def _begin(self, now: float) -> bool:
        """Set the time and notice that we were away, once for all that has piled up meanwhile. False when nothing is to
        happen any more."""
        if self._has_left:
            return False
        core = self._core
        late_s = now - max(self._due, self._excused)
        core.now = max(core.now, now)
        if late_s > core.config.late_s:
            self._excused = now
            core.awareness.change(1)
            self._members.shift(late_s)
            self._detector.shift(late_s)
            if late_s > core.config.suspicion_s[0]:
                self._look_around()
        return True

    def _end(self) -> list[Action]:
        """Do what follows from the event, and see when the next tick is due."""
        members, core = self._members, self._core
        if members.to_probe or members.returned or members.contradicted or members.unknown:
            self._follow_up()
        self._due = min(
            members.next_end(), self._detector.deadline(), self._exchange.deadline(), self._name_exchange.deadline()
        )
        if self._has_news():
            self._due = min(self._due, max(self._next_gossip, core.now))
        return core.collect()

    def _follow_up(self) -> None:
        members, core = self._members, self._core
        for record in _drained(members.to_probe):
            self._detector.probe_now(record)
        for record in _drained(members.returned):
            self._exchange.compare(record)
            self._name_exchange.compare(record)
        for sender in dict.fromkeys(_drained(members.contradicted)):
            core.send(sender, Kind.NEWS, claims=(core.me.claim(),), reliable=True)
        self._exchange.ask(_drained(members.unknown))

    def _look_around(self) -> None:
        """We were away for so long that others may have declared us dead: they will say so when they hear from us."""
        for record in self._core.table.sample(self._core.config.gossip_fanout):
            self._exchange.compare(record)

    # ---- inside events

    def _handle(self, sender: str, message: Message) -> None:
        members = self._members
        members.heard(sender)
        if message.kind == Kind.JOIN:
            self._exchange.hear_join(sender, message.claims, message.incarnation)
        else:
            for claim in message.claims:
                members.hear(claim, sender, message.incarnation, message.kind)
        self._dispatch(sender, message)
        if message.kind != Kind.REFUSE:
            members.contact(sender, message.incarnation, message.life)

    def _dispatch(self, sender: str, message: Message) -> None:
        match message.kind, message.body:
            case Kind.PING, Ping() as ping:
                self._detector.ping(sender, ping)
            case Kind.ACK, Ping() as ack:
                self._detector.ack(sender, ack)
            case Kind.PING_REQ, PingReq() as request:
                self._detector.ping_req(sender, request)
            case Kind.NACK, int(seq):
                self._detector.nack(sender, seq)
            case Kind.COMPARE, Compare() as window:
                self._exchange.hear_compare(sender, window, message.claims)
            case Kind.ASK, Ask(node_ids):
                self._exchange.hear_ask(sender, node_ids)
            case Kind.WELCOME, _:
                if self._exchange.hear_welcome(sender):
                    self._name_exchange.announce()
            case Kind.REFUSE, str(reason):
                self._exchange.hear_refusal(sender, reason)
            case Kind.NAMES_DIGEST, bytes(digest):
                self._name_exchange.hear_digest(sender, digest)
            case Kind.NAMES, Names() as names:
                for record in names.records:
                    self._emit_all(self._names.hear(record, sender))
                self._name_exchange.hear_names(sender, names)

    def _write(self, name: str, now: float, *, held: bool) -> list[Action]:
        if not self._begin(now):
            return []
        self._emit_all(self._names.write(name, held=held))
        self._name_exchange.announce()
        return self._end()

    def _emit_all(self, changes: Sequence[NameChanged]) -> None:
        for change in changes:
            self._core.emit(change)

    def _has_news(self) -> bool:
        """Something to pass on, and somebody to pass it on to."""
        return bool(self._core.news or self._names.news) and self._core.table.size > 1

    def _gossip(self) -> None:
        core = self._core
        if not self._has_news() or self._next_gossip > core.now:
            return
        self._next_gossip = core.now + core.config.gossip_interval_s
        targets = core.table.sample(core.config.gossip_fanout)
        for record in targets:
            if core.news:
                core.send(record.node_id, Kind.NEWS)
        self._name_exchange.gossip(targets)

    def _view(self, record: Record) -> MemberView:
        return record.view(self._names.held_by(record.node_id))


def _drained(items: list[_T]) -> list[_T]:
    """The items, of which the list is emptied."""
    taken = items[:]
    items.clear()
    return taken
