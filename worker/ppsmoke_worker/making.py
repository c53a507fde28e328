"""What several workers of a machine need at the same moment, one of them makes; the others wait and find it kept.

Five stages that start with an empty cache would else run five compilers on the same text.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, BinaryIO

from tinygrad.helpers import diskcache_get, diskcache_put


def kept_or_made(table: str, key: str, make: Callable[[], Any]) -> Any:
    """What `table` of tinygrad's cache has under `key`, else what `make` gives, which it has from then on.

    Without a cache that can be used (CACHELEVEL 0) everything is made.
    """
    kept = diskcache_get(table, key)
    if kept is not None:
        return kept
    with _alone(f"{table} {key}"):
        kept = diskcache_get(table, key)  # another worker may just have made it
        return kept if kept is not None else diskcache_put(table, key, make())


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """Hold the lock for `what` among all processes that use this cache. It falls with the process that holds it."""
    lock = _lock_file(os.environ.get("CACHEDB"))
    if lock is None:
        yield
        return
    at = int.from_bytes(hashlib.sha256(what.encode()).digest()[:7], "little")  # a byte of the file that nobody writes
    fcntl.lockf(lock, fcntl.LOCK_EX, 1, at)
    try:
        yield
    finally:
        fcntl.lockf(lock, fcntl.LOCK_UN, 1, at)


@cache
def _lock_file(database: str | None) -> BinaryIO | None:
    """Open as long as the process: closing any handle of the file would drop all its locks."""
    if database is None:
        return None
    try:
        return open(f"{database}.lock", "ab")
    except OSError:
        return None
