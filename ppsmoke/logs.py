"""Where a run's logs lie, and the last lines of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ppsmoke.errors import EnvironmentFault

KEPT_RUNS = 20
_TAIL_BYTES = 16 * 1024


def state_dir(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/pp-smoke-run`, else `~/.local/state/pp-smoke-run`."""
    base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "pp-smoke-run"


def make_log_dir(run_id: str, chosen: Path | None, environ: Mapping[str, str]) -> Path:
    """The run's log directory, made; the default place keeps the newest runs only. Raises EnvironmentFault."""
    runs = state_dir(environ) / "runs"
    path = chosen if chosen is not None else runs / run_id
    try:
        path.mkdir(parents=True, exist_ok=True)
        if chosen is None:
            _prune(runs)
    except OSError as error:
        raise EnvironmentFault(
            f"the log directory {path} cannot be made: {error.strerror}", remedy="Choose another with --log-dir."
        ) from error
    return path


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


def _prune(runs: Path) -> None:
    """Old runs go; only directories named like run ids count."""
    kept = sorted((p for p in runs.iterdir() if p.is_dir() and _is_run_id(p.name)), key=_made_at)
    for old in kept[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another run is pruning too
        return 0.0


def _is_run_id(name: str) -> bool:
    return len(name) == 32 and all(c in "0123456789abcdef" for c in name)
