"""What the machine was and did while something was measured: its make, its load, and who else used its cores."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ppsmoke_worker.compiler import find_compiler

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.errors import CompilerUnavailable

_PACKAGES = ("pp-smoke-run", "tinygrad", "iroh", "ziglang", "tokenizers", "gguf", "numpy")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def describe_machine() -> dict[str, Any]:
    """Facts that do not change during a run; None for what this machine does not tell."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _first_match(_text("/proc/cpuinfo"), r"model name\s*:\s*(.+)") or platform.processor() or None,
        "flags": [f for f in ("avx2", "avx512f", "avx512_vnni", "amx_int8", "asimd") if f in _cpu_flags()],
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "compiler": _compiler(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _said(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]),
    }


def load_average() -> list[float]:
    """Runnable processes, averaged over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


class Quiet:
    """How many cores processes that are not of the measurement used meanwhile: `with Quiet() as quiet: ...`.

    The measurement's own are this process and the children it has waited for. `foreign_cores` is None where the system
    does not count.
    """

    foreign_cores: float | None = None

    def __enter__(self) -> Quiet:
        self._busy, self._own, self._began = _busy_s(), _own_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        busy, lasted = _busy_s(), time.monotonic() - self._began
        if busy is not None and self._busy is not None and lasted > 0:
            foreign = (busy - self._busy) - (_own_s() - self._own)
            self.foreign_cores = round(max(0.0, foreign / lasted), 3)


def busy_seconds(stat: str) -> float | None:
    """CPU seconds that all cores together spent working, from the text of /proc/stat: user, nice, system, irq, softirq,
    steal. Guests' time is part of user time already."""
    fields = _first_match(stat, r"^cpu +([\d ]+)$")
    if fields is None:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields.split()[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def _busy_s() -> float | None:
    return busy_seconds(_text("/proc/stat"))


def _own_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _cpu_flags() -> set[str]:
    return set((_first_match(_text("/proc/cpuinfo"), r"(?:flags|Features)\s*:\s*(.+)") or "").split())


def _compiler() -> str | None:
    """What the compiler that the worker chooses says of itself."""
    try:
        command = find_compiler(os.environ, default_cache_dir()).command
    except CompilerUnavailable:
        return None
    return _said([*command, "--version"])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _said(command: list[str]) -> str | None:
    """The first line that a command writes."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _first_match(text: str, pattern: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else None
