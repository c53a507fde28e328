"""Which process holds a run's leases, and whether it still lives: so that a teardown leaves a run in progress alone."""

from __future__ import annotations

from ppsmoke.process_mark import Life, ProcessMark, own_mark
from ppsmoke.process_mark import life as life_of
from ppsmoke.vast.journal import RunHeader


def header_of_this_process(run_id: str, url: str, account: str | None) -> RunHeader:
    """The journal's first line for a run of this process."""
    mark = own_mark()
    return RunHeader(run_id, mark.pid, mark.started, mark.host, url, account, mark.boot)


def life(header: RunHeader | None) -> Life:
    """Whether the process that wrote the journal is running."""
    if header is None:
        return Life.UNKNOWN
    return life_of(ProcessMark(header.pid, header.process_started, header.host, header.boot))
