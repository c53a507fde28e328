"""A model that lies on the orchestrator's machine, as its nodes name and fetch it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ppsmoke.errors import ModelFetchFailed
from ppsmoke.files.protocol import OfferedFile
from ppsmoke.files.reader import FileReader
from ppsmoke.models.progress import Progress
from ppsmoke.models.share import Wanted, fetch_share, share_folder
from ppsmoke.split_naming import part_names

SCHEME = "orchestrator:"
"""Before the name of the model's first file, in a node's PP_MODEL."""


def fetch_from_orchestrator(
    reader: FileReader, model: str, wanted: Wanted, progress: Progress, *, cache_dir: Path | None = None
) -> Path:
    """The path of a file with at least the tensors that `wanted` names. `model` as in PP_MODEL.

    Raises ModelFetchFailed, JoinRefused, and what `fetch_share` raises.
    """
    first = model.removeprefix(SCHEME)
    offered = {file.name: file for file in reader.files()}
    missing = [name for name in part_names(first) if name not in offered]
    if missing:
        raise ModelFetchFailed(f"the orchestrator does not offer {', '.join(missing)}")
    sources = [_Source(reader, offered[name]) for name in part_names(first)]
    return fetch_share(sources, wanted, share_folder(_key(first, offered), cache_dir), progress)


@dataclass(frozen=True, slots=True)
class _Source:
    _reader: FileReader
    _file: OfferedFile

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def where(self) -> str:
        return f"{self._file.name} of the orchestrator"

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def version(self) -> str:
        return self._file.version

    def read(self, offset: int, length: int) -> bytes:
        return self._reader.read(self._file.name, offset, length)


def _key(first: str, offered: Mapping[str, OfferedFile]) -> str:
    versions = "|".join(offered[name].version for name in part_names(first))
    return f"{Path(first).stem[:60]}-{hashlib.sha256(versions.encode()).hexdigest()[:12]}"
