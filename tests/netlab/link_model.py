"""One direction of a link, as a queue in virtual time: delay, jitter, loss, rate, size limit, outages. Pure."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """`delay_s` one way; `jitter_s`: each packet takes up to so much longer, and none overtakes another.

    `loss`: the share of packets that vanish. `rate_bit_s` None: no limit; `queue_s`: how much may wait for the rate,
    as time, before what comes is dropped. `mtu`: packets above it, in bytes with their IP header, do not pass; their
    sender is told, or with `mtu_silent` they vanish.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_bit_s: float | None = None
    queue_s: float = 0.2
    mtu: int | None = None
    mtu_silent: bool = False


@dataclass(slots=True)
class LinkCount:
    """Packets so far, by what became of them."""

    carried: int = 0
    lost: int = 0
    overflowed: int = 0
    too_big: int = 0
    cut: int = 0


class LinkModel:
    """Packets in, packets out when they are due. Times are seconds of any clock that does not go back."""

    def __init__(self, settings: LinkSettings, seed: int) -> None:
        self.settings = settings
        self.count = LinkCount()
        self._rng = random.Random(seed)
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._sent_until = 0.0  # when the last bit of what was accepted is on the wire
        self._cut_until = 0.0

    def cut(self, until: float) -> None:
        """Drop all that is sent before `until`; what is under way arrives."""
        self._cut_until = until

    def send(self, now: float, packet: bytes) -> bool:
        """The packet arrives later, or never. False: its sender is to be told that it is too long."""
        settings, count = self.settings, self.count
        if now < self._cut_until:
            count.cut += 1
            return True
        if settings.mtu is not None and len(packet) > settings.mtu:
            count.too_big += 1
            return settings.mtu_silent
        if settings.loss and self._rng.random() < settings.loss:
            count.lost += 1
            return True
        sent = now
        if settings.rate_bit_s is not None:
            begins = max(now, self._sent_until)
            if begins - now > settings.queue_s:
                count.overflowed += 1
                return True
            sent = self._sent_until = begins + len(packet) * 8 / settings.rate_bit_s
        arrival = sent + settings.delay_s
        if settings.jitter_s:
            arrival += self._rng.random() * settings.jitter_s
        self._waiting.append((arrival, packet))
        count.carried += 1
        return True

    def due(self, now: float) -> list[bytes]:
        """What has arrived by `now`; it is gone from the link. What is quicker waits for what was sent before it."""
        arrived = []
        while self._waiting and self._waiting[0][0] <= now:
            arrived.append(self._waiting.popleft()[1])
        return arrived

    def next_at(self) -> float | None:
        """When the next packet arrives; None while the link is empty."""
        return self._waiting[0][0] if self._waiting else None
