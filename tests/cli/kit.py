"""The real command line in a process of its own, with every folder it may touch below one temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 240.0
_KEPT = ("PATH", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "TMPDIR")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the user's own settings, proxies and keys; `more` wins."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    folders = {
        "HOME": str(home),
        "PP_SMOKE_CACHE": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "xdg-cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    return {**kept, **folders, **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "ppsmoke.cli", *arguments]


def run_cli(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
