"""What the system lets a run open and start, looked at before anything is spawned.

Where a limit is met later, the network library ends the process with a page of its own, so it is asked for first.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

from ppsmoke.errors import EnvironmentFault

_PIDS_MAX = Path("/sys/fs/cgroup/pids.max")
# Counted in runs of 2 and 5 stages: 27 and 31 open files, 30 and 62 threads of all processes on 2 cores, 8 and 11 of
# them in this one. The network library takes a thread for each core, in every process that has it.
_FILES = 26
_FILES_A_STAGE = 2
_THREADS = 6
_THREADS_A_STAGE = 9
_PLENTY = 8192
_OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})


def check_process_limits(num_stages: int) -> None:
    """Raises EnvironmentFault where a run of so many stages on this machine would hit a limit on open files, on
    processes and threads, or on address space."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_A_STAGE * num_stages
    if files != resource.RLIM_INFINITY and files < needed:
        raise EnvironmentFault(
            f"a process may open {files} files here, and one of a run of {num_stages} stages needs {needed}",
            remedy="Raise the limit: ulimit -n 1024.",
        )
    _try_threads(num_stages)


def refused_by_system(error: BaseException) -> EnvironmentFault | None:
    """The error for a user where `error` says that the system is out of something; None for any other."""
    threads = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    other = isinstance(error, OSError) and error.errno in _OUT_OF
    if not (threads or other or isinstance(error, MemoryError)):
        return None
    return EnvironmentFault(
        f"the system refused: {error or 'no memory'}",
        remedy="Raise the limits (ulimit -a shows them), or use fewer stages.",
    )


def _try_threads(num_stages: int) -> None:
    """Start as many threads as the run will have, where something bounds them, for a moment."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = _THREADS + cores
    wanted = 0
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        wanted = own
    processes = [resource.getrlimit(resource.RLIMIT_NPROC)[0], _control_group_pids()]
    if any(limit not in (None, resource.RLIM_INFINITY) and limit < _PLENTY for limit in processes):
        wanted = own + num_stages * (_THREADS_A_STAGE + cores)
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise EnvironmentFault(
            f"the system gave {len(started)} threads, and a run of {num_stages} stages needs {wanted}",
            remedy="Raise the limit on processes (ulimit -u, or that of the container) or on address space (ulimit "
            "-v), or use fewer stages.",
        ) from None
    finally:
        over.set()
        for thread in started:
            thread.join()


def _control_group_pids() -> int | None:
    try:
        text = _PIDS_MAX.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
