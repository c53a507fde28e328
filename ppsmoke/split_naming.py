"""Names of split GGUF collections: `name-00001-of-00003.gguf` is the first of three parts."""

from __future__ import annotations

import re

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)


def part_number(name: str) -> tuple[int, int] | None:
    """(number from 1, count) when `name` (without folders) is that of a part; None otherwise."""
    match = _PART.match(name)
    if match is None:
        return None
    return int(match["number"]), int(match["count"])


def part_names(name: str) -> tuple[str, ...]:
    """The file names of every part of the collection that `name` belongs to; `(name,)` for a whole file."""
    match = _PART.match(name)
    if match is None:
        return (name,)
    count = int(match["count"])
    suffix = name[-len(".gguf") :]
    return tuple(f"{match['stem']}-{number:05d}-of-{count:05d}{suffix}" for number in range(1, count + 1))
