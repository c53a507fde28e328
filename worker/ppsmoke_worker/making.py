"""What several workers of a machine need at the same moment, one of them makes; the others wait and find it kept.

Five stages that start with an empty cache would else run five compilers on the same text.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from tinygrad import device, helpers

from ppsmoke_worker.cache_file import remove_if_damaged

# Whoever makes it may have been stopped (Ctrl-Z): then it is made twice, which harms nobody.
_PATIENCE_S = 30.0
_POLL_S = 0.02


def outlive_cache() -> None:
    """From now on a cache that fails, being full, broken or gone, is one message and no fault: kernels are compiled.

    tinygrad's own calls would end in the database's error, at every start of a worker while the file is broken.
    """
    device.diskcache_get, device.diskcache_put = _get, _put


def kept_or_made(table: str, key: str, make: Callable[[], Any]) -> Any:
    """What `table` of tinygrad's cache has under `key`, else what `make` gives, which it has from then on.

    Without a cache that can be used (CACHELEVEL 0) everything is made.
    """
    kept = _get(table, key)
    if kept is not None:
        return kept
    with _alone(f"{table} {key}"):
        kept = _get(table, key)  # another worker may just have made it
        return kept if kept is not None else _put(table, key, make())


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """Hold the lock for `what` among all processes that use this cache. It falls with the process that holds it."""
    lock = _lock_file(os.environ.get("CACHEDB"))
    if lock is None:
        yield
        return
    at = int.from_bytes(hashlib.sha256(what.encode()).digest()[:7], "little")  # a byte of the file that nobody writes
    until = time.monotonic() + _PATIENCE_S
    while not (mine := _locked(lock, at)) and time.monotonic() < until:
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        if mine:
            fcntl.lockf(lock, fcntl.LOCK_UN, 1, at)


def _locked(lock: BinaryIO, at: int) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except OSError:
        return False
    return True


@cache
def _lock_file(database: str | None) -> BinaryIO | None:
    """Open as long as the process: closing any handle of the file would drop all its locks."""
    if database is None:
        return None
    try:
        return open(f"{database}.lock", "ab")
    except OSError:
        return None


def _get(table: str, key: Any) -> Any:
    """As tinygrad's, but None where the cache fails."""
    try:
        return helpers.diskcache_get(table, key)
    except (sqlite3.Error, OSError) as error:
        _give_up(error)
        return None


def _put(table: str, key: Any, value: Any, prepickled: bool = False) -> Any:
    """As tinygrad's: `value`, kept or not."""
    try:
        return helpers.diskcache_put(table, key, value, prepickled)
    except (sqlite3.Error, OSError) as error:
        _give_up(error)
        return value


def _give_up(error: Exception) -> None:
    helpers.CACHELEVEL.value = 0
    connection, helpers._db_connection = helpers._db_connection, None
    if connection is not None:
        # Open, its transaction would keep all other workers waiting.
        with suppress(sqlite3.Error):
            connection.close()
    path = os.environ.get("CACHEDB", "")
    fate = ": damaged, removed" if remove_if_damaged(Path(path), error) else ""
    print(f"kernels are no longer cached: {path}{fate}: {error}", file=sys.stderr, flush=True)
