"""From what the user said (`--model`) to a model that is on this disk already."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ppsmoke.errors import ModelCorrupt, ModelNotFound, UsageError
from ppsmoke.models.aliases import ALIASES, ModelAlias
from ppsmoke.models.cache import CachedModel, model_folder, read_manifest, verify_model
from ppsmoke.models.hub import is_private
from ppsmoke.split_naming import part_names, part_number

_NAMES = f"known names: {', '.join(ALIASES)}; or give a path or an https:// address of a .gguf file"


@dataclass(frozen=True, slots=True)
class AliasSource:
    alias: ModelAlias


@dataclass(frozen=True, slots=True)
class UrlSource:
    url: str  # of the whole file or the first part


@dataclass(frozen=True, slots=True)
class PathSource:
    path: Path  # of the whole file or the first part


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model that the user named. `id` is what can be said again to mean the same."""

    id: str
    source: AliasSource | UrlSource | PathSource

    @property
    def path(self) -> Path | None:
        """Where it is, when the user named a local file."""
        return self.source.path if isinstance(self.source, PathSource) else None


def parse_model(value: str) -> ModelRef:
    """An alias, an https:// address, or the path of a file or of the first part of a split model.

    Looks at the disk only to tell a path from a mistyped alias. Raises UsageError, ModelNotFound.
    """
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", value):
        return _parse_url(value)
    alias = ALIASES.get(value.lower())
    if alias is not None:
        return ModelRef(alias.name, AliasSource(alias))
    if not value:
        raise UsageError("the model's name is empty", remedy=_NAMES)
    path = Path(value).expanduser()
    if path.is_file():
        _require_first_part(path.name, value)
        path = path.absolute()
        return ModelRef(str(path), PathSource(path))
    if path.is_dir():
        raise ModelNotFound(f"{value} is a folder, not a model", remedy="give the GGUF file itself")
    if path.exists():
        raise ModelNotFound(f"the model {value} is a pipe or a device, not a file", remedy="give the GGUF file itself")
    if value.lower().endswith(".gguf") or os.sep in value:
        raise ModelNotFound(f"there is no model file {value}")
    near = difflib.get_close_matches(value.lower(), ALIASES, n=1)
    raise UsageError(
        f"there is no model {value!r}: it is neither a known name nor a file",
        remedy=f"Did you mean {near[0]}? The {_NAMES}" if near else f"The {_NAMES}",
    )


def find_model(ref: ModelRef, *, cache_dir: Path | None = None) -> Path | None:
    """The model's path when it is on this disk already, else None. Never touches the network.

    Raises ModelNotFound for a local path that is gone, ModelCorrupt for a cached file of another size.
    """
    if isinstance(ref.source, PathSource):
        if not ref.source.path.is_file():
            raise ModelNotFound(f"there is no model file {ref.source.path}")
        return ref.source.path
    model = _cached(ref, cache_dir)
    return model.path if model is not None else None


def _parse_url(value: str) -> ModelRef:
    parts = urlsplit(value)
    if not parts.hostname or not is_private(value):
        raise UsageError(f"{value} is not an https:// address", remedy="give an https:// address of a .gguf file")
    if parts.username or parts.password:
        raise UsageError("a login in a model's address is not supported", remedy="use HF_TOKEN for the hub")
    if parts.hostname == "huggingface.co":
        # The page about a file is what people copy; the file is beside it.
        value = value.replace("/blob/", "/resolve/", 1)
    value = value.partition("#")[0]
    name = file_name(value)
    if not name.lower().endswith(".gguf"):
        raise UsageError(f"{value} does not name a .gguf file", remedy="give the address of the file itself")
    _require_first_part(name, value)
    return ModelRef(value, UrlSource(value))


def _require_first_part(name: str, value: str) -> None:
    number = part_number(name)
    if number is not None and number[0] != 1:
        first = value.replace(name, part_names(name)[0])
        raise UsageError(f"{value} is part {number[0]} of {number[1]} of a split model", remedy=f"give {first}")


def file_name(url: str) -> str:
    """The last piece of an address's path."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _cached(ref: ModelRef, cache_dir: Path | None) -> CachedModel | None:
    model = read_manifest(model_folder(model_key(ref), cache_dir))
    if model is None:
        return None
    wanted = part_names(model.files[0].name)
    if len(model.files) != len(wanted) or not all((model.folder / name).exists() for name in wanted):
        return None  # a split model of which some parts are there
    verify_model(model, hashes=False)
    if isinstance(ref.source, AliasSource):
        alias = ref.source.alias
        if alias.size is not None and model.nbytes != alias.size:
            raise ModelCorrupt(
                f"the cached {ref.id} has {model.nbytes} bytes, {alias.size} are known for it",
                remedy=f"remove it with `pp-smoke-run models remove {ref.id}` and fetch it again",
            )
    return model


def model_key(ref: ModelRef) -> str:
    """The folder name: readable, and another one for every id."""
    if isinstance(ref.source, AliasSource):
        return re.sub(r"[^a-z0-9.]+", "-", ref.id)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file_name(ref.id)).stem)[:60]
    return f"{readable}-{hashlib.sha256(ref.id.encode()).hexdigest()[:12]}"
