"""What a stage is doing, told to whoever watches the run. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["", "bytes", "blocks", "kernels"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`text` in words; `state` as in StageProgress, `done` of `total` in `unit`s, a total of 0: not known."""

    text: str
    state: Literal["fetching", "loading", "compiling", "loaded", "linking"]
    done: int = 0
    total: int = 0
    unit: Unit = ""


def worker_progress(fields: Mapping[str, Any]) -> Progress | None:
    """What a progress line of a worker says, see worker_protocol; None for one that says nothing."""
    match fields:
        case {
            "state": "loading" | "compiling" as state,
            "done": int(done),
            "total": int(total),
            "unit": "blocks" | "kernels" as unit,
        } if 0 <= done <= total:
            return Progress(f"{state} {done} of {total} {unit}", state, done, total, unit)
    return None
