"""The folder of fetched models: what is there, who may write, and nothing half-written.

    <cache>/models/<key>/<file>.gguf     a whole file, or every part of a split collection
    <cache>/models/<key>/model.json      where they came from, with the size and sha256 of each
    <cache>/models/<key>/*.partial-<pid>-<random>   a fetch in progress
    <cache>/models/.locks/<key>          held by whoever writes in that folder

A file appears under its name only when it is whole and verified. A lock dies with its holder, so whoever holds one may
remove every partial file in its folder: nobody alive is writing it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.durable import partial_path, replace_text, sync_folder
from ppsmoke.errors import EnvironmentFault, ModelCorrupt, ModelFetchFailed, ModelNotFound, NotEnoughDisk
from ppsmoke.figures import size

_MANIFEST = "model.json"
_PARTIAL = re.compile(r"\.partial-(\d+)-[0-9a-f]+$")
_LOCK_POLL_S = 0.1
_HASH_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class CachedFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One model of the cache, as its manifest describes it."""

    id: str  # what --model takes
    source: str  # where it was fetched from
    folder: Path
    files: tuple[CachedFile, ...]

    @property
    def path(self) -> Path:
        """The file to open: the whole model or its first part."""
        return self.folder / self.files[0].name

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files)


def list_models(cache_dir: Path | None = None) -> tuple[CachedModel, ...]:
    """Every model whose fetch was completed, in the order of their ids."""
    models = _models_dir(cache_dir)
    found = (read_manifest(manifest.parent) for manifest in models.glob(f"*/{_MANIFEST}"))
    return tuple(sorted((model for model in found if model is not None), key=lambda model: model.id))


def verify_model(model: CachedModel, *, hashes: bool) -> None:
    """Check that the files are as they were fetched. Sizes always, sha256 on request (it reads everything).

    Raises ModelCorrupt, with what to do.
    """
    remedy = f"remove it with `pp-smoke-run models remove {model.id}` and fetch it again"
    for file in model.files:
        path = model.folder / file.name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise ModelCorrupt(f"{path} is missing from the cached model {model.id}", remedy=remedy) from None
        if size != file.size:
            raise ModelCorrupt(f"{path} has {size} bytes, {file.size} were fetched", remedy=remedy)
        if hashes and hash_file(path) != file.sha256:
            raise ModelCorrupt(f"{path} does not have the sha256 that it was fetched with", remedy=remedy)


def remove_model(model_id: str, cache_dir: Path | None = None) -> int:
    """Remove a cached model and return the bytes it took. Raises ModelNotFound when there is none."""
    models = list_models(cache_dir)
    for model in models:
        if model.id == model_id:
            with locked(model.folder):
                nbytes = sum(path.stat().st_size for path in model.folder.iterdir() if path.is_file())
                shutil.rmtree(model.folder)
            return nbytes
    cached = ", ".join(model.id for model in models) or "none"
    raise ModelNotFound(f"there is no model {model_id!r} in the cache", remedy=f"cached models: {cached}")


def model_folder(key: str, cache_dir: Path | None = None) -> Path:
    """Where the model with this key lives, whether it is there or not."""
    return _models_dir(cache_dir) / key


def read_manifest(folder: Path) -> CachedModel | None:
    """The model in a folder, or None when no fetch into it was begun (or its manifest is not readable)."""
    try:
        data: dict[str, Any] = json.loads((folder / _MANIFEST).read_text())
        files = tuple(CachedFile(name, entry["size"], entry["sha256"]) for name, entry in data["files"].items())
        return CachedModel(data["id"], data["source"], folder, files) if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the write lock of a model's folder; `on_wait` is called once when somebody else holds it.

    Partial files that a killed process left in the folder are removed. Raises EnvironmentFault where the cache cannot
    be written.
    """
    lock = folder.parent / ".locks" / folder.name
    with writing_to(lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("wb")
    with handle:
        waited = False
        while not _try_lock(handle):
            if not waited:
                waited = True
                on_wait()
            time.sleep(_LOCK_POLL_S)
        for path in folder.glob("*.partial-*"):
            _remove(path)
        yield


def sweep_partials(cache_dir: Path | None = None) -> None:
    """Remove partial files, in all folders, whose process is gone."""
    for path in _models_dir(cache_dir).glob("*/*.partial-*"):
        match = _PARTIAL.search(path.name)
        if match and not _is_alive(int(match[1])):
            _remove(path)


@contextlib.contextmanager
def partial_file(folder: Path, name: str) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file beside `name`, open for writing. Gone at the end unless `commit` moved it into place."""
    path = partial_path(folder / name)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = path.open("xb")
    try:
        yield handle, path
    finally:
        # commit() has flushed and synced; closing may fail only on bytes of a full disk that nobody wants any more.
        with contextlib.suppress(OSError):
            handle.close()
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def partial_folder(folder: Path, name: str) -> Iterator[Path]:
    """A new folder for a fetch's temporary files, removed at the end."""
    path = partial_path(folder / name)
    with writing_to(folder):
        path.mkdir(parents=True)
    try:
        yield path
    finally:
        _remove(path)


def commit(handle: BinaryIO, partial: Path, model: CachedModel, file: CachedFile) -> CachedModel:
    """Put a complete, verified partial file in place under its name, durably; the model with it added."""
    files = {**{known.name: known for known in model.files}, file.name: file}
    grown = CachedModel(model.id, model.source, model.folder, tuple(files[name] for name in sorted(files)))
    with writing_to(model.folder):
        handle.flush()
        os.fsync(handle.fileno())
        _write_manifest(grown)
        os.replace(partial, model.folder / file.name)
        sync_folder(model.folder)
    return grown


def require_free_disk(folder: Path, nbytes: int, what: str) -> None:
    """Raise NotEnoughDisk unless `nbytes` fit where `folder` is (which need not exist yet)."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < nbytes:
        raise NotEnoughDisk(
            f"{what} needs {size(nbytes)} in {folder}, where {size(free)} are free",
            remedy="free some space, or point PP_SMOKE_CACHE at another disk",
        )


@contextlib.contextmanager
def writing_to(folder: Path | str) -> Iterator[None]:
    """Turn the errors of writing files into ours: a full disk, or a cache that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NotEnoughDisk(
                f"the disk of {folder} is full", remedy="free some space, or point PP_SMOKE_CACHE at another disk"
            ) from error
        raise EnvironmentFault(
            f"the model cache {folder} cannot be written: {error.strerror or error}",
            remedy="point PP_SMOKE_CACHE at a folder that can be written",
        ) from error


def hash_file(path: Path) -> str:
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def require_same(what: str, size: int, sha256: str, *, wanted_size: int | None, wanted_sha256: str | None) -> None:
    """Raise ModelFetchFailed when what arrived is not what was announced or pinned."""
    again = "fetch it again; if it stays so, the file at its source has changed"
    if wanted_size is not None and size != wanted_size:
        raise ModelFetchFailed(f"{what} came with {size} bytes, {wanted_size} were expected", remedy=again)
    if wanted_sha256 is not None and sha256 != wanted_sha256:
        raise ModelFetchFailed(f"{what} came with the sha256 {sha256}, expected is {wanted_sha256}", remedy=again)


def _try_lock(handle: BinaryIO) -> bool:
    with writing_to(handle.name):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _models_dir(cache_dir: Path | None) -> Path:
    return (default_cache_dir() if cache_dir is None else cache_dir) / "models"


def _write_manifest(model: CachedModel) -> None:
    data = {
        "id": model.id,
        "source": model.source,
        "files": {file.name: {"size": file.size, "sha256": file.sha256} for file in model.files},
    }
    replace_text(model.folder / _MANIFEST, json.dumps(data, indent=2))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
