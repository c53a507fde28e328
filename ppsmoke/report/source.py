"""Reads a bundle for the report: its records, and the last lines of its stages' logs."""

from __future__ import annotations

from pathlib import Path

from ppsmoke.bundle.folder import is_held
from ppsmoke.bundle.reader import read_bundle
from ppsmoke.logs import log_tail
from ppsmoke.report.story import Story, tell

_TAIL_LINES = 100


def read_story(directory: Path) -> Story:
    """Raises UsageError where nothing of a run lies."""
    bundle = read_bundle(directory)
    logs = {stage: log_tail(path, _TAIL_LINES) for stage, path in bundle.stage_logs.items()}
    for instance, path in bundle.instance_logs.items():
        stage = _stage_of(bundle.rental, instance)
        tail = log_tail(path, _TAIL_LINES) if stage is not None else []
        if stage is not None and tail:
            logs[stage] = tail  # of the machine that was the stage's last
    return tell(bundle, logs, alive=is_held(directory))


def _stage_of(rental: object, instance: int) -> int | None:
    """The stage that a rented machine served."""
    rows = rental.get("instances") if isinstance(rental, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == instance and isinstance(row.get("stage"), int):
            return int(row["stage"])
    return None
