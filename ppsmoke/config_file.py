"""The user's config file: where it is, what is in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ppsmoke.errors import UsageError
from ppsmoke.figures import size
from ppsmoke.named_file import read_named
from ppsmoke.wording import short_path

_REMEDY = "Mend it, or name another with --config; --config /dev/null reads none."
_MOST_BYTES = 16_000_000  # with room for a prompt; /dev/zero has no end


@dataclass(frozen=True, slots=True)
class ConfigText:
    """`name`: the file as errors call it. `shared`: others than its owner may read it."""

    name: str
    text: str
    shared: bool


def default_config(environ: Mapping[str, str]) -> Path | None:
    """`$XDG_CONFIG_HOME/pp-smoke-run/config.toml`, else `~/.config/pp-smoke-run/config.toml`; None without a home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        home = environ.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".config")
    return Path(base) / "pp-smoke-run" / "config.toml"


def read_config(path: Path, *, chosen: bool) -> ConfigText | None:
    """The file's text; None where the default one (not `chosen`) is missing or cannot be reached. Raises UsageError."""
    name = short_path(path)
    if name.isalpha():
        name = f"./{name}"  # else a sentence that begins with it would take it for a word
    try:
        data = read_named(path, most=_MOST_BYTES + 1)
        shared = stat.S_IMODE(path.stat().st_mode) & (stat.S_IRGRP | stat.S_IROTH) != 0
    except (FileNotFoundError, NotADirectoryError) as error:
        if not chosen:
            return None
        raise UsageError(f"the config file {name} cannot be read: {error.strerror}", remedy=_REMEDY) from None
    except OSError as error:
        raise UsageError(f"the config file {name} cannot be read: {error.strerror}", remedy=_REMEDY) from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the config file {name} is larger than {size(_MOST_BYTES)}", remedy=_REMEDY)
    try:
        return ConfigText(name, data.decode(), shared)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{name} line {line}: this is no UTF-8 text", remedy=_REMEDY) from None
