"""Resident memory of a run's nodes and workers, read from outside while they serve."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROGRAMS = {"ppsmoke.node_cli": "node", "ppsmoke_worker": "worker"}
_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of one process: `peak` so far, `now` at the last look."""

    peak: int
    now: int


class MemoryWatch:
    """Looks at the descendants of a process again and again until it is stopped.

    Looking takes time from what is looked at, so a run that is watched is not one to take speed from.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], Resident] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, pid: int) -> None:
        """Begin, with the process that began everything."""
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, pid: int) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                children = psutil.Process(pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return
            for child in children:
                self._look(child)

    def _look(self, process: psutil.Process) -> None:
        try:
            command, stage = process.cmdline(), process.environ().get("STAGE")
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (psutil.Error, OSError):
            return
        kind = next((kind for module, kind in _PROGRAMS.items() if module in command), None)
        resident = parse_status(status)
        if kind is not None and stage is not None and resident is not None:
            self.found[kind, int(stage)] = resident


def parse_status(status: str) -> Resident | None:
    """From the text of /proc/PID/status; None of a process that has ended."""
    sizes = {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB", status, re.M)}
    return Resident(sizes["VmHWM"], sizes["VmRSS"]) if len(sizes) == 2 else None


def memory_figures(
    found: Mapping[tuple[str, int], Resident], plan: Sequence[Mapping[str, int]], used_share: float
) -> dict[str, float]:
    """MB (10^6 bytes) of the largest stage of each kind.

    `plan`: the stages' planned bytes. `used_share`: positions in use over those of the context; a worker's own memory
    is what it has beyond its weights and that share of its cache.
    """
    figures: dict[str, float] = {}
    for kind in ("node", "worker"):
        of_kind = [resident for (name, _), resident in found.items() if name == kind]
        if of_kind:
            figures[f"{kind}_mb"] = max(resident.now for resident in of_kind) / 1e6
            figures[f"{kind}_peak_mb"] = max(resident.peak for resident in of_kind) / 1e6
    above = [
        resident.now - plan[stage]["weight_bytes"] - used_share * plan[stage]["kv_bytes"]
        for (name, stage), resident in found.items()
        if name == "worker" and stage < len(plan)
    ]
    if above:
        figures["worker_above_mb"] = max(above) / 1e6
    if found:
        figures["all_mb"] = sum(resident.now for resident in found.values()) / 1e6
    return figures
