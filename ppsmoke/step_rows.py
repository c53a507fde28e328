"""The steps in a StageRecords: fixed binary rows, in base64. Pure.

Text, since control messages are JSON; binary, since a chain makes hundreds a second and each costs both ends time.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_ROW = struct.Struct("<HIII5d")  # index of the request, sequence, part, length; five times


class Step(NamedTuple):
    """See StepRan; monotonic seconds of the stage's machine."""

    request_id: str
    sequence: int
    part: int
    seq_len: int
    arrived: float
    began: float
    done: float
    back: float
    written: float


class RowsRefused(Exception):
    """What came is no rows of steps; the text says why."""


def pack_steps(steps: Iterable[Step]) -> tuple[tuple[str, ...], str]:
    """The requests that the steps are of, at most 65536, and the rows."""
    places: dict[str, int] = {}
    packed = b"".join(_ROW.pack(places.setdefault(step.request_id, len(places)), *step[1:]) for step in steps)
    return tuple(places), binascii.b2a_base64(packed, newline=False).decode()


def unpack_steps(requests: Sequence[str], rows: str) -> list[Step]:
    """Raises RowsRefused."""
    try:
        packed = binascii.a2b_base64(rows, strict_mode=True) if rows else b""
        return [Step(requests[place], *rest) for place, *rest in _ROW.iter_unpack(packed)]
    except (binascii.Error, ValueError, struct.error) as error:
        raise RowsRefused(f"steps that are no rows: {error}") from None
    except IndexError:
        raise RowsRefused("a step of a request that is not named") from None
