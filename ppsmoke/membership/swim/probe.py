"""Probing: one member in each period, first by datagram, then on the reliable stream and through others.

SWIM, section 3.1, with the random round robin of section 4.3. Lifeguard: a helper that gets no answer says so (NACK),
and the local health score prolongs every wait and the period. Ours: the probe is repeated on the reliable stream at the
time at which the helpers are asked, so that one lost datagram is never the reason for a suspicion; and the dead are
probed now and then, so that the halves of a healed partition find each other again.
"""

from __future__ import annotations

import math

from ppsmoke.membership.swim import wire
from ppsmoke.membership.swim.api import Detour
from ppsmoke.membership.swim.awareness import probe_failed_delta
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.members import Members
from ppsmoke.membership.swim.rtt import clamp
from ppsmoke.membership.swim.table import Record
from ppsmoke.membership.swim.wire import DIRECT, RELAYED, REPEATED, Kind, Ping, PingReq

_MAX_PROBES = 16
_MAX_RELAYS = 64
_SEQS = 1 << 32


class _Probe:
    """One member being probed. `next_at`: when to repeat it, and once it is repeated, when it has failed.
    `is_vouched_for`: a helper has had an answer, and we are waiting for our own only to know of the path."""

    __slots__ = ("asked", "incarnation", "is_vouched_for", "next_at", "record", "refused", "repeated_at", "started")

    def __init__(self, record: Record, now: float, next_at: float) -> None:
        self.record = record
        self.incarnation = record.incarnation
        self.started = now
        self.repeated_at: float | None = None
        self.next_at = next_at
        self.asked: set[str] = set()
        self.refused: set[str] = set()
        self.is_vouched_for = False


class _Relay:
    """A probe on behalf of `origin`. `next_at`: when to say that there is no answer, and then, when to forget it."""

    __slots__ = ("budget_s", "next_at", "origin", "refused", "seq", "target")

    def __init__(self, origin: str, seq: int, target: str, now: float, budget_s: float) -> None:
        self.origin = origin
        self.seq = seq
        self.target = target
        self.budget_s = budget_s
        self.next_at = now + budget_s / 2
        self.refused = False


class Detector:
    """Finds out who does not answer, and tells `members`."""

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self._seq = core.rng.randrange(_SEQS)
        self._probes: dict[int, _Probe] = {}
        self._relays: dict[int, _Relay] = {}
        self._next_period = core.now + core.rng.random() * core.config.probe_interval_s
        self._next_revival = core.now

    def deadline(self) -> float:
        due = self._next_period
        for probe in self._probes.values():
            if probe.next_at < due:
                due = probe.next_at
        for relay in self._relays.values():
            if relay.next_at < due:
                due = relay.next_at
        if self._members.dead:
            due = min(due, max(self._next_revival, min(dead.revive_at for dead in self._members.dead.values())))
        return due

    def tick(self) -> None:
        now = self._core.now
        for seq, probe in [(seq, probe) for seq, probe in self._probes.items() if probe.next_at <= now]:
            if probe.repeated_at is None:
                self._repeat(seq, probe)
            else:
                self._end(seq, probe)
        for seq, relay in [(seq, relay) for seq, relay in self._relays.items() if relay.next_at <= now]:
            self._relay_unanswered(seq, relay)
        if self._members.dead and self._next_revival <= now:
            self._revive()
        if self._next_period <= now:
            self._next_period = now + self._core.awareness.scale(self._core.config.probe_interval_s)
            self._probe_next()

    def shift(self, delay_s: float) -> None:
        """We were not there for so long: everybody gets that time on top."""
        for probe in self._probes.values():
            probe.next_at += delay_s
        for relay in self._relays.values():
            relay.next_at += delay_s

    def probe_now(self, record: Record) -> None:
        """Probe out of turn, unless it is being probed or too many are."""
        if record.state == "dead":
            self.call(record)
        elif record.is_present and len(self._probes) < _MAX_PROBES and not self._is_probed(record):
            self._start(record)

    def call(self, record: Record) -> None:
        """Ping a member thought dead, telling it so: if it is there, it will contradict."""
        self._ping(record, self._new_seq(), DIRECT)

    # ---- messages

    def ping(self, sender: str, ping: Ping) -> None:
        reliable = ping.attempt != DIRECT
        self._core.send(sender, Kind.ACK, wire.encode_ping(ping.seq, ping.attempt), reliable=reliable)

    def ack(self, sender: str, ack: Ping) -> None:
        if relay := self._relays.get(ack.seq):
            if relay.target == sender:
                del self._relays[ack.seq]
                self._core.send(relay.origin, Kind.ACK, wire.encode_ping(relay.seq, RELAYED), reliable=True)
            return
        probe = self._probes.get(ack.seq)
        if probe is None:
            return
        now = self._core.now
        if sender == probe.record.node_id and ack.attempt == DIRECT:
            probe.record.round_trip.sample(now - probe.started)
        elif sender == probe.record.node_id and ack.attempt == REPEATED and probe.repeated_at is not None:
            probe.record.round_trip.sample(now - probe.repeated_at)
        elif sender in probe.asked and ack.attempt == RELAYED:
            if not probe.is_vouched_for:
                probe.is_vouched_for = True
                self._core.awareness.change(-1)
            return
        else:
            return
        del self._probes[ack.seq]
        probe.record.detours = 0
        if not probe.is_vouched_for:
            self._core.awareness.change(-1)

    def nack(self, sender: str, seq: int) -> None:
        probe = self._probes.get(seq)
        if probe is not None and sender in probe.asked:
            probe.refused.add(sender)

    def ping_req(self, sender: str, request: PingReq) -> None:
        target = self._core.table.get(request.target)
        if request.target == self._core.me.node_id:
            self._core.send(sender, Kind.ACK, wire.encode_ping(request.seq, RELAYED), reliable=True)
        elif target is None or not target.is_present or len(self._relays) >= _MAX_RELAYS:
            self._core.send(sender, Kind.NACK, wire.encode_nack(request.seq), reliable=True)
        else:
            seq = self._new_seq()
            budget_s = min(request.budget_ms / 1000, self._core.config.probe_timeout_s[1])
            self._relays[seq] = _Relay(sender, request.seq, request.target, self._core.now, budget_s)
            self._ping(target, seq, REPEATED, reliable=True)

    # ---- a probe's life

    def _probe_next(self) -> None:
        for _ in self._core.table.present:
            record = self._core.table.next_to_probe()
            if record is not None and not self._is_probed(record):
                self._start(record)
                return

    def _start(self, record: Record) -> None:
        core = self._core
        wait_s = clamp(record.round_trip.timeout_s(), core.config.direct_timeout_s)
        seq = self._new_seq()
        self._probes[seq] = _Probe(record, core.now, core.now + core.awareness.scale(wait_s))
        self._ping(record, seq, DIRECT)

    def _repeat(self, seq: int, probe: _Probe) -> None:
        core, config = self._core, self._core.config
        record = probe.record
        wait_s = record.round_trip.timeout_s()
        whole_s = clamp(
            clamp(wait_s, config.direct_timeout_s) + config.round_trips_for_repeat * wait_s, config.probe_timeout_s
        )
        probe.repeated_at = core.now
        probe.next_at = max(probe.started + core.awareness.scale(whole_s), core.now + config.direct_timeout_s[0])
        self._ping(record, seq, REPEATED, reliable=True)
        budget_ms = min(int((probe.next_at - core.now) * 1000), 0xFFFF)
        body = wire.encode_ping_req(seq, record.node_id, budget_ms)
        for helper in core.table.sample(config.indirect_probes, but=record.node_id):
            probe.asked.add(helper.node_id)
            core.send(helper.node_id, Kind.PING_REQ, body, reliable=True)

    def _end(self, seq: int, probe: _Probe) -> None:
        del self._probes[seq]
        if not probe.record.is_present:
            return
        if probe.is_vouched_for:
            probe.record.detours += 1
            self._core.emit(Detour(probe.record.node_id, probe.record.detours))
            return
        probe.record.round_trip.lost()
        if probe.asked or probe.record.state == "alive":
            self._core.awareness.change(probe_failed_delta(len(probe.asked), len(probe.refused)))
        self._members.probe_failed(probe.record, probe.incarnation, probe.started)

    def _relay_unanswered(self, seq: int, relay: _Relay) -> None:
        if relay.refused:
            del self._relays[seq]
            return
        relay.refused = True
        relay.next_at += relay.budget_s / 2
        self._core.send(relay.origin, Kind.NACK, wire.encode_nack(relay.seq), reliable=True)

    def _revive(self) -> None:
        now, pause_s = self._core.now, self._core.config.revive_interval_s
        dead = min(self._members.dead.values(), key=lambda dead: dead.revive_at)
        if dead.revive_at <= now:
            self._next_revival = now + pause_s
            dead.revive_at = now + revival_pause_s(pause_s, now - dead.since)
            self.call(dead)

    # ---- helpers

    def _is_probed(self, record: Record) -> bool:
        return any(probe.record is record for probe in self._probes.values())

    def _ping(self, record: Record, seq: int, attempt: int, *, reliable: bool = False) -> None:
        """One that is not alive for us is told so in the same message."""
        claims = () if record.state == "alive" else (record.claim(),)
        self._core.send(record.node_id, Kind.PING, wire.encode_ping(seq, attempt), claims=claims, reliable=reliable)

    def _new_seq(self) -> int:
        self._seq = (self._seq + 1) % _SEQS
        return self._seq


def revival_pause_s(interval_s: float, dead_for_s: float) -> float:
    """Between two calls to one of the dead: the interval in its first minute, then twice that for each doubling of the
    time it has been dead, up to 16 intervals."""
    doublings = max(0, math.frexp(dead_for_s / 60)[1])
    return float(interval_s * min(2**doublings, 16))
