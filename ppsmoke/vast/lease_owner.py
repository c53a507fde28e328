"""Which process holds a run's leases, and whether it still lives: so that a teardown leaves a run in progress alone."""

from __future__ import annotations

import os
import platform
from enum import Enum

import psutil

from ppsmoke.vast.journal import RunHeader

_CLOCK_SLACK_S = 3.0  # start times are reckoned from the boot time, which moves when the clock is set


class Life(Enum):
    """UNKNOWN: it was started where its process id says nothing here, as in another container."""

    ALIVE = "in progress"
    DEAD = "ended"
    UNKNOWN = "started on another machine"


def header_of_this_process(run_id: str, url: str, account: str | None) -> RunHeader:
    """The journal's first line for a run of this process."""
    return RunHeader(
        run_id=run_id,
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        host=this_host(),
        url=url,
        account=account,
    )


def this_host() -> str:
    """Names the place where a process id means something: the host, and its namespace of process ids if it has one."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{platform.node()} {namespace}".strip()


def life(header: RunHeader | None) -> Life:
    """Whether the process that wrote the journal is running."""
    if header is None or header.host != this_host():
        return Life.UNKNOWN
    try:
        process = psutil.Process(header.pid)
        started = process.create_time()
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return Life.DEAD
    except psutil.AccessDenied:  # someone else's process has the id now, or one that cannot be looked at
        return Life.UNKNOWN
    if ended or abs(started - header.process_started) > _CLOCK_SLACK_S:
        return Life.DEAD
    return Life.ALIVE
