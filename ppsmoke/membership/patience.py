"""How long a member may be silent before it counts as dead, as numbers of the protocol. Pure."""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.membership.swim import LOCAL, WAN, SwimConfig

LOCAL_SILENCE_S = 5.0
"""Within this every member of a local run has noticed that another one hangs; mostly it takes two or three seconds."""
WAN_SILENCE_S = 30.0
"""The same among machines that meet over relays; mostly it takes fifteen."""


def local_config(silence_s: float = LOCAL_SILENCE_S) -> SwimConfig:
    """The local profile, made quicker or more patient in everything that judges; how news spreads stays as it is."""
    return _judging(LOCAL, silence_s / LOCAL_SILENCE_S)


def wan_config(silence_s: float = WAN_SILENCE_S) -> SwimConfig:
    """The profile of machines far from each other, likewise."""
    return _judging(WAN, silence_s / WAN_SILENCE_S)


def sure_to_bear_s(config: SwimConfig) -> float:
    """A silence of this length kills nobody, however the probes fall: the quickest doubt takes so long, and then the
    least time to contradict it. Mostly one may be silent somewhat longer."""
    return config.probe_timeout_s[0] + config.suspicion_s[0]


def _judging(profile: SwimConfig, factor: float) -> SwimConfig:
    return replace(
        profile,
        probe_interval_s=profile.probe_interval_s * factor,
        direct_timeout_s=_times(profile.direct_timeout_s, factor),
        probe_timeout_s=_times(profile.probe_timeout_s, factor),
        suspicion_s=_times(profile.suspicion_s, factor),
    )


def _times(bounds: tuple[float, float], factor: float) -> tuple[float, float]:
    return bounds[0] * factor, bounds[1] * factor
