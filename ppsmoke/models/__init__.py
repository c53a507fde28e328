"""Models: their names, where they come from, and the cache they are fetched into."""

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.models.aliases import ALIASES, DEFAULT_MODEL, ModelAlias
from ppsmoke.models.cache import CachedModel, list_models, remove_model, verify_model
from ppsmoke.models.progress import Progress, SilentProgress, show_progress
from ppsmoke.models.resolve import (
    AliasSource,
    ModelRef,
    PathSource,
    UrlSource,
    ensure_model,
    ensure_share,
    find_model,
    parse_model,
)
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
