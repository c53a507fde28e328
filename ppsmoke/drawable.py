"""Whether a terminal is one to draw on."""

from __future__ import annotations

from collections.abc import Mapping


def moves(environ: Mapping[str, str]) -> bool:
    """Whether a terminal with this environment can show what changes in place, to somebody who looks at it."""
    if environ.get("TERM", "") in ("", "dumb", "unknown") or environ.get("NO_COLOR"):
        return False
    return environ.get("CI", "").lower() in ("", "0", "false")
