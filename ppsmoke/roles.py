"""Which part of the model a stage has: its role and its block range, both pure functions of (index, count)."""

from __future__ import annotations

from enum import StrEnum

from ppsmoke.errors import PlanInvalid


class Role(StrEnum):
    """First: embedding + its range. Middle: its range only. Last: its range + output norm + head + sampler."""

    FIRST = "First"
    MIDDLE = "Middle"
    LAST = "Last"


def role_of(stage_index: int, stage_count: int) -> Role:
    """The role of stage `stage_index` of `stage_count`; raises PlanInvalid for a pair that names no stage."""
    if stage_count < 2:
        raise PlanInvalid(f"a chain needs at least 2 stages, not {stage_count}")
    if not 0 <= stage_index < stage_count:
        raise PlanInvalid(f"there is no stage {stage_index} in a chain of {stage_count}")
    if stage_index == 0:
        return Role.FIRST
    return Role.LAST if stage_index == stage_count - 1 else Role.MIDDLE


def layer_range(stage_index: int, stage_count: int, num_layers: int) -> tuple[int, int]:
    """The half-open block range of one stage: the first `num_layers mod stage_count` stages take one block more."""
    if not 1 <= stage_count <= num_layers:
        raise PlanInvalid(f"{num_layers} blocks cannot be cut into {stage_count} stages")
    if not 0 <= stage_index < stage_count:
        raise PlanInvalid(f"there is no stage {stage_index} in a chain of {stage_count}")
    share, extra = divmod(num_layers, stage_count)
    start = stage_index * share + min(stage_index, extra)
    return start, start + share + (1 if stage_index < extra else 0)


def layer_ranges(stage_count: int, num_layers: int) -> list[tuple[int, int]]:
    """The block ranges of all stages, in stage order."""
    return [layer_range(index, stage_count, num_layers) for index in range(stage_count)]
