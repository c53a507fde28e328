"""What a stage's machine must have, from the run plan's memory figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ppsmoke.stage_memory import StageMemory
from ppsmoke.vast.prices import Traffic

_CONTEXT_BYTES = 700 * 1000**2  # a CUDA context with its compiled kernels
_HEAD_ROOM = 1.15
_INSTALLED_GB = 4.0  # interpreter and packages, with what pip keeps while it unpacks
_LEAST_DISK_GB = 10.0
_PACKAGES_GB = 0.25  # to download: packages
_REST_GB = 0.1  # to download: package lists, the model's header, activations


@dataclass(frozen=True, slots=True)
class StageNeed:
    """`vram_mb` of 10^6 bytes on one GPU; `disk_gb` is asked for and paid for, whole GB."""

    stage: int
    vram_mb: float
    disk_gb: float
    traffic: Traffic


def stage_need(stage: int, memory: StageMemory, image_gb: float) -> StageNeed:
    """`memory`: of the stage's block range at its context. `image_gb`: to pull, compressed.

    Whether the service counts a GPU's memory in 10^6 or 2^20 bytes is not documented; the smaller unit asks for more.
    """
    model_gb = memory.file_bytes / 1000**3
    on_gpu = memory.total_bytes + _CONTEXT_BYTES
    return StageNeed(
        stage=stage,
        vram_mb=math.ceil(on_gpu * _HEAD_ROOM / 1000**2),
        disk_gb=max(_LEAST_DISK_GB, math.ceil(_INSTALLED_GB + model_gb * _HEAD_ROOM)),
        traffic=Traffic(down_gb=image_gb + _PACKAGES_GB + _REST_GB + model_gb, up_gb=_REST_GB),
    )


def stage_needs(memories: Sequence[StageMemory], image_gb: float) -> tuple[StageNeed, ...]:
    """The needs of all stages, in stage order."""
    return tuple(stage_need(stage, memory, image_gb) for stage, memory in enumerate(memories))
