"""Which process wrote something down, and whether that very process still lives."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

# Where the kernel does not tell a start time that setting the clock leaves alone.
_CLOCK_SLACK_S = 3.0


class Life(Enum):
    """UNKNOWN: it was started where its process id says nothing here, as in another container."""

    ALIVE = "in progress"
    DEAD = "ended"
    UNKNOWN = "started on another machine"


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """`started`, `boot`: so that another process with the same `pid` is not taken for this one; `host`: where that pid
    means something. `started`: seconds since `boot`, since the epoch where that is empty."""

    pid: int
    started: float
    host: str
    boot: str = ""


def own_mark() -> ProcessMark:
    """Of this process."""
    started = _started(os.getpid())
    assert started is not None
    return ProcessMark(os.getpid(), started, this_host(), this_boot())


def this_host() -> str:
    """Names the place where a process id means something: the host, and its namespace of process ids if it has one."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return " ".join(filter(None, (platform.node(), _read("/etc/machine-id")[:12], namespace)))


def this_boot() -> str:
    """Differs each time the machine was started; empty where the system does not tell."""
    return _read("/proc/sys/kernel/random/boot_id")


def life(mark: ProcessMark | None) -> Life:
    """Whether the process is running."""
    if mark is None or mark.host != this_host():
        return Life.UNKNOWN
    if mark.boot != this_boot():
        return Life.DEAD
    try:
        started = _started(mark.pid)
    except psutil.AccessDenied:
        return Life.UNKNOWN
    slack = 0.0 if mark.boot else _CLOCK_SLACK_S
    return Life.DEAD if started is None or abs(started - mark.started) > slack else Life.ALIVE


def _started(pid: int) -> float | None:
    """Seconds since the machine was started, else since the epoch; None for a process that has ended."""
    if this_boot():
        # "pid (name) state ...", where the name may hold anything; the 20th field after it is the time.
        fields = _read(f"/proc/{pid}/stat").rpartition(") ")[2].split()
        if len(fields) < 20 or fields[0] in "ZX":
            return None
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
