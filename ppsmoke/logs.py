"""Where a run's logs lie, and the last lines of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_TAIL_BYTES = 16 * 1024
_STAMP = re.compile(r"^\d\d:\d\d:\d\d\.\d+ (?:worker: )?")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File ".+", line \d+')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def state_dir(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/pp-smoke-run`, else `~/.local/state/pp-smoke-run`. A relative path counts as not set, as the
    XDG rules have it: from another directory the journals would not be found."""
    base = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
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
    return without_tracebacks(line.rstrip() for line in text.splitlines() if line.strip())[-lines:]


def without_tracebacks(lines: Iterable[str]) -> list[str]:
    """What a user is shown of a log: of a Python traceback, whole or without its beginning, the line that names the
    exception. The log itself has all of it."""
    kept: list[str] = []
    inside = False
    for line in lines:
        said = _STAMP.sub("", line)
        if said.startswith(_TRACEBACK) or _FRAME.match(said):
            inside = True
        elif not ((inside and said.startswith(" ")) or said.startswith(_CHAINED)):
            inside = False
            kept.append(line)
    return kept
