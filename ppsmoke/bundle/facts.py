"""What a run's environment.json says of the machine and the versions: nothing that is secret, no variable's value."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ppsmoke import __version__


def host_facts() -> dict[str, Any]:
    """Of this machine and this installation; what cannot be had is None."""
    return {
        "tool": __version__,
        "python": platform.python_version(),
        "iroh": _version("iroh"),
        "tinygrad": _version("tinygrad"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "locale_encoding": sys.getfilesystemencoding(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "Hardware"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
