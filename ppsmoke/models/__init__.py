"""Models: their names, where they come from, and the cache they are fetched into."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.models.aliases import ALIASES, DEFAULT_MODEL, ModelAlias
from ppsmoke.models.cache import CachedModel, list_models, remove_model, verify_model
from ppsmoke.models.resolve import AliasSource, ModelRef, PathSource, UrlSource, find_model, parse_model

if TYPE_CHECKING:
    from ppsmoke.models.ensure import ensure_model, ensure_share
    from ppsmoke.models.progress import Progress, SilentProgress, show_progress
    from ppsmoke.models.share import header_only, stage_share

__all__ = [
    "ALIASES",
    "DEFAULT_MODEL",
    "AliasSource",
    "CachedModel",
    "ModelAlias",
    "ModelRef",
    "PathSource",
    "Progress",
    "SilentProgress",
    "UrlSource",
    "default_cache_dir",
    "ensure_model",
    "ensure_share",
    "find_model",
    "header_only",
    "list_models",
    "parse_model",
    "remove_model",
    "show_progress",
    "stage_share",
    "verify_model",
]

# Fetching needs an HTTP library and a progress bar; a run of a model that is here already starts sooner without them.
_LOADED_WHEN_USED = {
    "ensure_model": "ensure",
    "ensure_share": "ensure",
    "Progress": "progress",
    "SilentProgress": "progress",
    "show_progress": "progress",
    "header_only": "share",
    "stage_share": "share",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_WHEN_USED[name]}"), name)
