"""How many threads a stage computes with."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threads:
    """While decoding one stage works at a time, in prefill all do."""

    decode: int
    prefill: int


def choose_threads(wanted: int | None, num_stages: int | None) -> Threads:
    """`wanted` for both if given; else the cores, which the stages of a machine share in prefill."""
    if wanted is not None:
        return Threads(wanted, wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Threads(cores, max(1, cores // (num_stages or 1)))
