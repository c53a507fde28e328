"""Where a run's logs lie, and the last lines of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_TAIL_BYTES = 16 * 1024


def state_dir(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/pp-smoke-run`, else `~/.local/state/pp-smoke-run`."""
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "pp-smoke-run"


def log_tail(path: Path, lines: int = 12) -> list[str]:
    """The last lines of a log file, without reading more than its end; none when there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
