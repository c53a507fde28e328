"""Whether what a file says is of the types that its record promises: a damaged line must not break a report. Pure."""

from __future__ import annotations

import math
import types
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ppsmoke.run_events import RunEvent

MOST_STAGES = 4096  # a report has rows for each: a damaged number must not make a billion of them


def well_formed(event: RunEvent) -> bool:
    """Whether every field has a value of its type; numbers are finite, and a stage is one that a run can have."""
    stage = getattr(event, "stage", None)
    if isinstance(stage, int) and not 0 <= stage < MOST_STAGES:
        return False
    return all(_fits(getattr(event, name), hint) for name, hint in _hints(type(event)))  # type: ignore[arg-type]


@cache
def _hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple and isinstance(value, tuple):
        if inner[-1] is ...:
            return all(_fits(item, inner[0]) for item in value)
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(hint, type) and isinstance(value, hint)
