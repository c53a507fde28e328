"""A file behind an http(s) address as a source of ranges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ppsmoke.errors import ModelFetchFailed
from ppsmoke.models.remote import Remote, RemoteFile


@dataclass(frozen=True, slots=True)
class HttpSource:
    """`name` is the file's name on this disk."""

    name: str
    where: str
    size: int
    version: str
    _remote: Remote
    _file: RemoteFile

    def read(self, offset: int, length: int) -> bytes:
        return self._remote.read_range(self._file, offset, length)


def http_source(remote: Remote, url: str, name: str, *, wanted_size: int | None = None) -> HttpSource:
    """Ask the server about the file. `wanted_size`: the pinned size, if any.

    Raises ModelFetchFailed, also where the server gives no ranges: then only the whole file can be fetched.
    """
    found = remote.probe(url)
    where = url.partition("?")[0]
    if not found.ranges or found.size is None:
        raise ModelFetchFailed(
            f"the server of {where} gives no parts of files", remedy="fetch the whole model, or take another address"
        )
    if wanted_size is not None and found.size != wanted_size:
        raise ModelFetchFailed(
            f"{where} has {found.size} bytes, {wanted_size} were expected",
            remedy="the file at its source has changed; give its address in place of the name",
        )
    # Without a strong tag of the server its first megabytes must do: the header and the first tensors.
    version = found.sha256 or found.etag or f"head {hashlib.sha256(found.head).hexdigest()}"
    return HttpSource(name, where, found.size, version, remote, found)
