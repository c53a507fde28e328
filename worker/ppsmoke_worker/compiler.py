"""A clang for tinygrad's CPU kernels: the user's, the system's, or the one inside the `ziglang` package."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ppsmoke.errors import CompilerUnavailable

# For tinygrad's own kernels. A float sum may be reordered only with these; without them every dot product stays scalar,
# several times slower. The C kernels have their vectors, and the order of their sums, written down.
SPEED_FLAGS = ("-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
_TRY_S = 60.0
_COMPILE_S = 300.0
_PROBE_SOURCE = "void probe(float* restrict a, const float* b) { for (int i = 0; i < 64; i++) a[0] += b[i]; }\n"
_ELF_MAGIC = b"\x7fELF"
_VERSIONED_CLANGS = tuple(f"clang-{version}" for version in range(22, 13, -1))


@dataclass(frozen=True, slots=True)
class CpuCompiler:
    """`command` is clang, or zig and `clang`; `flags` go with all kernels. `identity` changes with its version,
    all flags, this machine's CPU and the version of tinygrad."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    env: Mapping[str, str]
    identity: str


def find_compiler(env: Mapping[str, str], cache_dir: Path) -> CpuCompiler:
    """The first compiler that compiles what tinygrad asks for; raises CompilerUnavailable with what was tried."""
    # Contraction decides about bits, so it is not left to a default.
    flags: tuple[str, ...] = ("-ffp-contract=on",)
    if _machine() == "x86_64":
        flags = (*flags, "-mprefer-vector-width=512")
    # zig keeps caches; they must not end up in the current directory or in /tmp.
    compiler_env = {
        **env,
        "ZIG_GLOBAL_CACHE_DIR": str(cache_dir / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(cache_dir / "zig"),
    }
    tried: list[str] = []
    for command in _candidates(env):
        problem = _try(command, flags, compiler_env)
        if problem is None:
            try:
                return CpuCompiler(command, flags, compiler_env, _identity(command, flags, compiler_env))
            except (OSError, subprocess.TimeoutExpired) as error:
                problem = str(error)
        tried.append(f"{' '.join(command)}: {problem}")
    what = "; ".join(tried) if tried else "no clang on the PATH and no ziglang package"
    raise CompilerUnavailable(
        f"no C compiler that can build the CPU kernels ({what})",
        remedy="pip install ziglang, or install clang (Debian: apt install clang), or name one by CC=/path/to/clang",
    )


def tinygrad_arguments(arch: str, arch_flags: tuple[str, ...]) -> tuple[str, ...]:
    """tinygrad's own clang arguments: C on stdin, an ELF object on stdout."""
    return (
        *("-c", "-x", "c", "-O2", "-fPIC", "-ffreestanding", "-fno-math-errno", "-nostdlib", "-fno-ident"),
        f"--target={arch}-none-unknown-elf",
        *arch_flags,
    )


def compile_object(compiler: CpuCompiler, arch: str, arch_flags: tuple[str, ...], source: str) -> bytes:
    """An ELF object of `source`; raises CompilerUnavailable with the compiler's last words."""
    arguments = (*tinygrad_arguments(arch, arch_flags), *compiler.flags, "-", "-o", "-")
    try:
        done = subprocess.run(
            [*compiler.command, *arguments],
            input=source.encode(),
            capture_output=True,
            env=compiler.env,
            timeout=_COMPILE_S,
            check=False,
        )
    except OSError as error:
        raise CompilerUnavailable(f"the C compiler {compiler.command[0]} cannot be started: {error}") from error
    except subprocess.TimeoutExpired:
        raise CompilerUnavailable(
            f"the C compiler {compiler.command[0]} was not done within {_COMPILE_S:g} s"
        ) from None
    if done.returncode != 0 or not done.stdout.startswith(_ELF_MAGIC):
        raise CompilerUnavailable(f"{' '.join(compiler.command)} failed: {_last_line(done.stderr)}")
    return done.stdout


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    path = env.get("PATH")
    named = env.get("CC", "")
    if named and (found := shutil.which(named, path=path)):
        yield (found,)
    for name in ("clang", *_VERSIONED_CLANGS):
        if found := shutil.which(name, path=path):
            yield (found,)
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for name in ("zig", "zig.exe"):
            if (zig := Path(folder) / name).is_file():
                yield (str(zig), "clang")


def _try(command: tuple[str, ...], flags: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    """None when it works, else the reason."""
    arch = _machine()
    arch_flags = ("-ffixed-x18", "-mcpu=native") if arch == "arm64" else ("-march=native",)
    arguments = (*tinygrad_arguments(arch, arch_flags), *flags, *SPEED_FLAGS, "-", "-o", "-")
    try:
        done = subprocess.run(
            [*command, *arguments],
            input=_PROBE_SOURCE.encode(),
            capture_output=True,
            env=env,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and done.stdout.startswith(_ELF_MAGIC):
        return None
    return _last_line(done.stderr)


def _identity(command: tuple[str, ...], flags: tuple[str, ...], env: Mapping[str, str]) -> str:
    # Its standard input would else be this worker's requests.
    version = subprocess.run(
        [*command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=_TRY_S, check=False
    ).stdout
    parts = (
        *command,
        *flags,
        *SPEED_FLAGS,
        metadata.version("tinygrad"),
        version.decode(errors="replace"),
        _cpu_model(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu_model() -> str:
    # Kernels are compiled for the very CPU (-march=native), and a home directory may be shared by several.
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part", "isa")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _machine() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(machine, machine)


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "error:" in line]
    return (errors or lines or ["it made no object file and said nothing"])[-1][:200]
