"""The file that the kernel cache is: one that is damaged is removed, so that the next worker begins a new one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path


def remove_if_damaged(path: Path, error: Exception) -> bool:
    """Whether `error` came of a damaged file that is gone now. A file that is only busy, full or locked is kept.

    Who has it open keeps what it has; the check is repeated alone, since another worker may have removed it and a third
    begun a good one.
    """
    if not _is_damage(error):
        return False
    try:
        with _alone_in(path.parent):
            if not _is_damaged(path):
                return False
            for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                name.unlink(missing_ok=True)
    except OSError:
        return False
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError where another process is there, which does the same. The folder is what is locked: to
    close a second handle of the makers' own lock file would drop their locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _is_damage(error: Exception) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


def _is_damaged(path: Path) -> bool:
    found = None
    try:
        with closing(sqlite3.connect(path, timeout=1)) as connection, suppress(sqlite3.OperationalError):
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return _is_damage(error)
    return found is not None and found != ("ok",)
