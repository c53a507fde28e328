"""How long a member may be silent before it counts as dead, as numbers of the protocol. Pure."""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.membership.swim import LOCAL, SwimConfig

LOCAL_SILENCE_S = 5.0
"""Within this every member of a local run has noticed that another one hangs; mostly it takes two or three seconds."""


def local_config(silence_s: float = LOCAL_SILENCE_S) -> SwimConfig:
    """The local profile, made quicker or more patient in everything that judges; how news spreads stays as it is."""
    factor = silence_s / LOCAL_SILENCE_S
    return replace(
        LOCAL,
        probe_interval_s=LOCAL.probe_interval_s * factor,
        direct_timeout_s=_times(LOCAL.direct_timeout_s, factor),
        probe_timeout_s=_times(LOCAL.probe_timeout_s, factor),
        suspicion_s=_times(LOCAL.suspicion_s, factor),
    )


def _times(bounds: tuple[float, float], factor: float) -> tuple[float, float]:
    return bounds[0] * factor, bounds[1] * factor
