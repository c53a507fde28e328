"""How many threads a stage computes with."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

# A token's weights come from memory, which a few cores already use up: on two cores two threads are 1.25 times as fast
# as one, and no slower where five stages share the cores. Reading a prompt computes 30 times as much with each weight.
_MOST_WHILE_DECODING = 8


@dataclass(frozen=True, slots=True)
class Threads:
    """While decoding one stage works at a time, in prefill all do."""

    decode: int
    prefill: int


def choose_threads(wanted: int | None, num_stages: int | None, cores: int | None = None) -> Threads:
    """`wanted` for both if given; else the cores, which the stages of a machine share in prefill."""
    if sys.platform != "linux":  # the threads wait for each other by Linux's system calls
        return Threads(1, 1)
    if wanted is not None:
        return Threads(wanted, wanted)
    cores = cores or usable_cores()
    return Threads(min(cores, _MOST_WHILE_DECODING), max(1, cores // (num_stages or 1)))


def usable_cores() -> int:
    """Those this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
