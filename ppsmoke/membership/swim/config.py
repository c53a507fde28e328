"""How fast, how patient and how big: every number of the protocol that can be chosen, and two starting points."""

from __future__ import annotations

from dataclasses import dataclass, field

from ppsmoke.membership.swim.api import AdmitRule, NameRule, admit_all, any_name

PROTOCOL_VERSION = 1

MAX_MESSAGE_BYTES = 1100
"""What a QUIC datagram carries on any path (1162 before the path's MTU is known), with room to spare."""

MAX_ADDRESS_BYTES = 512
MAX_NAME_BYTES = 64

Bounds = tuple[float, float]
"""(floor, ceiling) in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwimConfig:
    """All times in seconds. The same numbers must be used by all members of a cluster, except where said otherwise.

    cluster: 8 bytes that keep clusters apart, see `cluster_tag`.

    Probing
    probe_interval_s: one member is probed in each, so it bounds load and the time to the first doubt (about 1.6 of it
        on average). It should be over three round trips.
    direct_timeout_s: bounds on the wait for the answer to a datagram, before the probe is repeated on the reliable
        stream and through others. Between them the measured round trip decides.
    probe_timeout_s: bounds on the whole probe, from the first datagram to the suspicion; between them, the direct
        timeout and `round_trips_for_repeat` round trips.
    round_trip_guess_s: used for a member of whom no round trip was measured.
    indirect_probes: how many others are asked to probe a member that does not answer.
    max_awareness: the local health score's limit (Lifeguard); a node with score s waits (s + 1) times as long.

    Suspicion
    suspicion_s: (least, most) time between suspicion and death in a cluster of up to 10; grows with log10 beyond. The
        most applies while nobody else has confirmed the suspicion, and when there is nobody who could.
    confirmations: how many others must confirm for the least time to apply; fewer where there are fewer.
    suspicion_round_trips: the least time is not under so many measured round trips (with four times their variation),
        but never over the most.
    verifiers: how many of those who hear of a suspicion probe the suspect at once, on average.

    Spreading
    gossip_interval_s, gossip_fanout: while there is news, it is sent to so many random members in each interval.
    retransmit_mult, retransmit_floor: each piece of news is sent max(floor, mult * ceil(log10(n + 1))) times by each.
    exchange_interval_s: how often records are compared with a random member, whatever was gossiped.
    names_interval_s: how often the digest of the names is compared with a random member.
    join_retry_s: pause before a join that was not answered is sent again.
    revive_interval_s: how often one of the dead is probed, so that the halves of a healed partition find each other.
        The pause doubles for a member that has been dead for long, up to 16 of them.

    Own health
    late_s: a tick that comes later than this after its deadline was starved: it moves deadlines and lowers the health.

    Limits
    max_members, max_names, max_names_per_member, max_notes: what a member that lies can make us remember.
    dead_memory_s: how long the dead and those who left are remembered, so that old gossip does not bring them back.

    Rules
    admit, may_hold: who may be a member, who may hold which name. May differ between members (the orchestrator knows
        the plan).
    """

    cluster: bytes = bytes(8)
    protocol_version: int = PROTOCOL_VERSION

    probe_interval_s: float = 1.0
    direct_timeout_s: Bounds = (0.2, 0.5)
    probe_timeout_s: Bounds = (1.0, 4.0)
    round_trips_for_repeat: float = 3.0
    round_trip_guess_s: float = 0.1
    indirect_probes: int = 3
    max_awareness: int = 8

    suspicion_s: Bounds = (2.0, 4.0)
    confirmations: int = 2
    suspicion_round_trips: float = 8.0
    verifiers: float = 8.0

    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    retransmit_mult: float = 4.0
    retransmit_floor: int = 6
    exchange_interval_s: float = 15.0
    names_interval_s: float = 2.0
    join_retry_s: float = 1.0
    revive_interval_s: float = 2.0

    late_s: float = 0.2

    max_members: int = 512
    max_names: int = 1024
    max_names_per_member: int = 16
    max_notes: int = 256
    dead_memory_s: float = 3600.0

    admit: AdmitRule = field(default=admit_all)
    may_hold: NameRule = field(default=any_name)

    def __post_init__(self) -> None:
        if len(self.cluster) != 8:
            raise ValueError("the cluster tag has 8 bytes")


LOCAL = SwimConfig(
    probe_interval_s=0.25,
    direct_timeout_s=(0.15, 0.25),
    probe_timeout_s=(0.5, 2.0),
    round_trip_guess_s=0.02,
    suspicion_s=(1.2, 2.0),
    gossip_interval_s=0.1,
    exchange_interval_s=5.0,
    names_interval_s=1.0,
    join_retry_s=0.5,
    revive_interval_s=1.0,
    late_s=0.2,
    max_awareness=4,
)
"""Processes of one machine: a crash is known to all in about 2 s."""

WAN = SwimConfig(
    probe_interval_s=2.0,
    direct_timeout_s=(0.5, 2.0),
    probe_timeout_s=(2.0, 8.0),
    round_trip_guess_s=0.5,
    suspicion_s=(10.0, 25.0),
    gossip_interval_s=0.5,
    gossip_fanout=4,
    exchange_interval_s=30.0,
    names_interval_s=2.0,
    join_retry_s=2.0,
    revive_interval_s=5.0,
    late_s=0.5,
)
"""Rented machines that meet over relays: round trips of 200 to 500 ms, bursts of seconds, some loss. A crash is known
to all in about 15 s."""
