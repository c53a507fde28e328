"""Where fetched models and compiled kernels are kept. Imports nothing: the tool and the worker share it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """`$PP_SMOKE_CACHE`, else `$XDG_CACHE_HOME/pp-smoke-run`, else `~/.cache/pp-smoke-run`."""
    env = os.environ if env is None else env
    if env.get("PP_SMOKE_CACHE"):
        return Path(env["PP_SMOKE_CACHE"]).expanduser()
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "pp-smoke-run"
