"""The one place that decides tinygrad's settings, all before its first import."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.errors import DeviceUnavailable
from ppsmoke_worker.cache_file import remove_if_damaged
from ppsmoke_worker.compiler import CpuCompiler, find_compiler

# What tinygrad 0.14.0 reads from the environment at import or while it builds kernels. Many are everyday names of other
# tools (a NO_COLOR=true ends its import), others would change results: none is taken from the user.
_READ_BY_TINYGRAD = """
    ALL2ALL ALLOW_DEVICE_USAGE ALLOW_TF32 ALLREDUCE_CAST BEAM CACHEDB CACHELEVEL CAPTURE_PROCESS_REPLAY CAPTURING
    CCACHE CHECK_OOB DEBUG DEBUG_RANGEIFY DEFAULT_FLOAT DEFAULT_INT DISABLE_FAST_IDIV DISALLOW_BROADCAST
    EMULATED_DTYPES FLOAT16 FUSE_OPTIM HALF IGNORE_BEAM_CACHE IMAGE JIT JITBEAM JIT_BATCH_SIZE LRU MAX_BUFFER_SIZE
    MAX_KERNEL_BUFFERS NOLOCALS NOOPT NO_COLOR NO_MEMORY_PLANNER NULL_ALLOW_COPYOUT NUM_CPU_THREADS OPENPILOT_HACKS
    PARALLEL PCONTIG PROFILE REALIZE RING SCACHE SPEC SPLIT_REDUCEOP TC TC_OPT TC_SELECT TRACEMETA TRACK_MATCH_STATS
    TRAINING TRANSCENDENTAL TUPLE_ORDER USE_ATOMICS VALIDATE_WITH_CPU VIZ WINO
"""
# PARALLEL=0: no pool of compiler processes stays behind. HCQ2=0: no thread spins while kernels run.
# NOOPT, DMC: plain loops, which clang vectorises better than tinygrad's own unrolling and coalescing.
_CPU = {"PARALLEL": "0", "HCQ2": "0", "NOOPT": "1", "DMC": "1"}
# The driver alone is enough for PTX; the other needs the CUDA toolkit's compiler and headers.
_NVIDIA_ORDER = ("CUDA", "CUDA:PTX")
_PROBE_S = 120.0
# Half too: nvrtc without its headers fails only there.
_PROBE = "from tinygrad import Tensor; assert (Tensor([1.0, 2.0]).half().realize().float() + 1).sum().item() == 5.0"


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """`name` as tinygrad has it; `compiler` on the CPU only; `reason` says why it is this device."""

    name: str
    compiler: CpuCompiler | None
    reason: str


def prepare_device(wanted: str | None, env: MutableMapping[str, str]) -> DeviceSettings:
    """Chooses the device and puts tinygrad's settings into `env`; raises CompilerUnavailable, DeviceUnavailable."""
    if "tinygrad" in sys.modules:
        raise RuntimeError("tinygrad was imported before its settings were made")
    cache_dir = default_cache_dir(env)
    for variable in _READ_BY_TINYGRAD.split():
        env.pop(variable, None)
    name, reason = (wanted, "as asked for") if wanted else _first_that_works(env, cache_dir)
    env["DEV"] = name
    if name.split(":")[0].upper() != "CPU":
        _use_cache(env, cache_dir, name.replace(":", "-").replace("/", "-"))
        return DeviceSettings(name, None, reason)
    env.update(_CPU)
    compiler = find_compiler(env, cache_dir)
    _use_cache(env, cache_dir, f"cpu-{compiler.identity}")
    return DeviceSettings(name, compiler, reason)


def no_such_device(name: str) -> DeviceUnavailable:
    """The error where tinygrad has no module for a device."""
    return DeviceUnavailable(f"tinygrad has no device {name}", remedy="name a device it has, as CPU or CUDA")


def is_cpu(name: str) -> bool:
    return name.split(":")[0].upper() == "CPU"


def _use_cache(env: MutableMapping[str, str], cache_dir: Path, key: str) -> None:
    """Compiled kernels in a file of their own per compiler and CPU; none at all where it cannot be written."""
    path = cache_dir / "kernels" / f"{key}.db"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _open_cache(path)
        except sqlite3.Error as error:
            if not remove_if_damaged(path, error):
                raise
            print(f"the kernel cache was damaged and begins anew: {path}: {error}", file=sys.stderr, flush=True)
            _open_cache(path)
    except (OSError, sqlite3.Error) as error:
        print(f"kernels are not cached: {path}: {error}", file=sys.stderr, flush=True)
        env["CACHELEVEL"] = "0"
        return
    env["CACHEDB"] = str(path)


def _open_cache(path: Path) -> None:
    """Make it, or show that it can be written. Raises sqlite3.Error."""
    with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS pp_smoke_run (opened INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _first_that_works(env: Mapping[str, str], cache_dir: Path) -> tuple[str, str]:
    """The device and why. Tried in another process: a backend that failed to open leaves its traces in tinygrad."""
    if not any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")):
        return "CPU", "there is no NVIDIA GPU"
    problems: list[str] = []
    for name in _NVIDIA_ORDER:
        probe_env = {**env, "DEV": name, "CACHELEVEL": "0"}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", _PROBE], env=probe_env, capture_output=True, timeout=_PROBE_S, check=False
            )
        except subprocess.TimeoutExpired:
            problems.append(f"{name}: no answer within {_PROBE_S:g} s")
            continue
        if done.returncode == 0:
            return name, "; ".join(["the first that works", *problems])
        problems.append(f"{name}: {(done.stderr.decode(errors='replace').strip().splitlines() or ['?'])[-1][:200]}")
    raise DeviceUnavailable(
        f"there is an NVIDIA GPU, but tinygrad cannot use it ({'; '.join(problems)})",
        remedy="install the NVIDIA driver that belongs to it, or use the CPU: --device CPU",
    )
