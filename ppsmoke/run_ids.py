"""What a user calls a run: the first digits of its id, which every run prints, or more of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ppsmoke.errors import UsageError

_DIGITS = re.compile(r"[0-9a-f]{8,32}")


def is_run_id(text: str) -> bool:
    """Whether this is an id of a run or its first 8 digits or more; of fewer, two runs could easily be meant."""
    return _DIGITS.fullmatch(text) is not None


def only_run(given: str, ids: Iterable[str]) -> str | None:
    """The one of `ids` that `given` means; ids may be cut off, too. None for none. Raises UsageError for several."""
    meant = sorted({known for known in ids if known.startswith(given) or given.startswith(known)})
    if len(meant) > 1:
        raise UsageError(
            f"{len(meant)} runs' ids begin with {given}: {', '.join(meant)}", remedy="Give more of its digits."
        )
    return meant[0] if meant else None
