"""A real browser without a window, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 120
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # in a container the browser may make none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)
_CONSOLE = re.compile(r"CONSOLE[^\n]*")


def browser() -> str:
    """Its program; skips the test where none is installed."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here; apt-get install chromium")
    return found


def built_page(file: Path, profile: Path, *options: str, address: str = "") -> tuple[str, list[str]]:
    """The page's document after its scripts ran, and what they, or its security policy, wrote to the console."""
    done = subprocess.run(
        [browser(), *_OPTIONS, f"--user-data-dir={profile}", *options, "--dump-dom", f"{file.as_uri()}{address}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    return done.stdout, _CONSOLE.findall(done.stderr)
