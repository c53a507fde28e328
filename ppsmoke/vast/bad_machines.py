"""Machines that failed this user before: remembered in one small file, so that the cheapest bad one is not drawn again.

A failure counts for a while and then is forgotten, since hosts get repaired; a machine that failed again and again is
left out for longer.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ppsmoke.durable import replace_text
from ppsmoke.logs import state_dir

FORGET_AFTER_S = 7 * 24 * 3600.0
_LONGEST_S = 60 * 24 * 3600.0
_MOST_REASON_CHARS = 200
_MOST_MACHINES = 500


@dataclass(frozen=True, slots=True)
class BadMachine:
    """`last_failed_at` in seconds since the epoch."""

    machine_id: int
    failures: int
    last_failed_at: float
    reason: str

    def is_avoided(self, now: float) -> bool:
        """A week after one failure, twice as long after each further one. A time in the future counts as now."""
        lasts_s = min(_LONGEST_S, FORGET_AFTER_S * 2.0 ** (self.failures - 1))
        return now - self.last_failed_at < lasts_s


def bad_machines_file(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "bad-machines.json"


def parse_bad_machines(text: str) -> list[BadMachine]:
    """What is readable of a file's text; a file that was damaged is no reason not to rent."""
    try:
        rows = json.loads(text)["machines"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    found: list[BadMachine] = []
    for row in rows if isinstance(rows, list) else []:
        try:
            machine = BadMachine(
                int(row["machine_id"]),
                int(row["failures"]),
                float(row["last_failed_at"]),
                str(row["reason"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if machine.failures >= 1 and math.isfinite(machine.last_failed_at):
            found.append(machine)
    return found


def merge_failures(known: Iterable[BadMachine], failed: Mapping[int, str], now: float) -> list[BadMachine]:
    """`known` with the machines that `failed` now (id to reason); what need not be avoided any more is dropped."""
    machines = {machine.machine_id: machine for machine in known if machine.is_avoided(now)}
    for machine_id, reason in failed.items():
        before = machines.get(machine_id)
        machines[machine_id] = BadMachine(
            machine_id, min(1000, before.failures + 1 if before else 1), now, reason[:_MOST_REASON_CHARS]
        )
    newest = sorted(machines.values(), key=lambda machine: (machine.last_failed_at, machine.machine_id))
    return newest[-_MOST_MACHINES:]


def render_bad_machines(machines: Iterable[BadMachine]) -> str:
    rows = [
        {
            "machine_id": machine.machine_id,
            "failures": machine.failures,
            "last_failed_at": machine.last_failed_at,
            "reason": machine.reason,
        }
        for machine in machines
    ]
    return json.dumps({"machines": rows}, indent=1) + "\n"


def read_bad_machines(path: Path, now: float) -> frozenset[int]:
    """The machines to avoid; none when the file cannot be read."""
    return frozenset(machine.machine_id for machine in _load(path) if machine.is_avoided(now))


def remember_failures(path: Path, failed: Mapping[int, str], now: float) -> None:
    """Add to the file, whole or not at all, also beside another run that does. Raises OSError."""
    if not failed:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f"{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        replace_text(path, render_bad_machines(merge_failures(_load(path), failed, now)))


def _load(path: Path) -> list[BadMachine]:
    try:
        return parse_bad_machines(path.read_text())
    except (OSError, UnicodeDecodeError):
        return []
