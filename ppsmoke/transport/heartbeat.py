"""Who has fallen silent. Pure: events with their times in, actions out.

Every link is pinged once a period; anything heard on it resets its silence. A process that was itself starved (its own
tick came late) must not accuse its peers: it could not have heard them, so every deadline moves by the time it missed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendPing:
    peer: str
    serial: int


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """`silent_s`: how long nothing was heard, the time we were starved ourselves left out."""

    peer: str
    silent_s: float


@dataclass(slots=True)
class _Pulse:
    heard: float
    serial: int = 0
    sent: float | None = None
    rtt_s: float | None = None


class Heartbeats:
    """All times are seconds on one monotonic clock.

    `period_s` between ticks and pings; `silence_limit_s` until a silent link is lost; `late_s`: a gap between two ticks
    above it means that this process did not run.
    """

    def __init__(self, *, silence_limit_s: float = 10.0, period_s: float = 1.0, late_s: float = 2.0) -> None:
        self.silence_limit_s = silence_limit_s
        self.period_s = period_s
        self.late_s = late_s
        self._pulses: dict[str, _Pulse] = {}
        self._last_tick: float | None = None

    def add(self, peer: str, now: float) -> None:
        if self._last_tick is None:
            self._last_tick = now
        self._pulses[peer] = _Pulse(heard=now)

    def remove(self, peer: str) -> None:
        self._pulses.pop(peer, None)

    def heard(self, peer: str, now: float) -> None:
        """Anything arrived from `peer`; unknown peers are ignored (their link has just been dropped)."""
        if pulse := self._pulses.get(peer):
            pulse.heard = now

    def pong(self, peer: str, serial: int, now: float) -> None:
        """The answer to our ping `serial`; one that is not the newest says only that the peer lives."""
        pulse = self._pulses.get(peer)
        if pulse is None:
            return
        pulse.heard = now
        if serial == pulse.serial and pulse.sent is not None:
            pulse.rtt_s = now - pulse.sent
            pulse.sent = None

    def rtt_s(self, peer: str) -> float | None:
        """The newest measured round trip in seconds, None before the first."""
        pulse = self._pulses.get(peer)
        return pulse.rtt_s if pulse else None

    def tick(self, now: float) -> list[SendPing | LinkSilent]:
        """To be called every `period_s`. A link reported silent is forgotten."""
        gap = 0.0 if self._last_tick is None else now - self._last_tick
        self._last_tick = now
        if gap > self.late_s:
            missed = gap - self.period_s
            for pulse in self._pulses.values():
                pulse.heard = min(now, pulse.heard + missed)
                if pulse.sent is not None:
                    pulse.sent = None
        actions: list[SendPing | LinkSilent] = []
        for peer, pulse in list(self._pulses.items()):
            if now - pulse.heard >= self.silence_limit_s:
                del self._pulses[peer]
                actions.append(LinkSilent(peer, now - pulse.heard))
                continue
            pulse.serial += 1
            pulse.sent = now
            actions.append(SendPing(peer, pulse.serial))
        return actions
