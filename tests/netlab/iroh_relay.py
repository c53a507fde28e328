"""The real relay server, of the version that the iroh wheel in use was made with, built once by cargo.

`python -m tests.netlab.iroh_relay` builds it into the cache, unless it is there; some minutes. PP_IROH_RELAY may name
another program.
"""

from __future__ import annotations

import argparse
import fcntl
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.iroh_fix import iroh

BUILD = "python -m tests.netlab.iroh_relay"
_BUILD_S = 1200.0
_LOOK_S = 0.5
_SETTINGS = {
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_PROFILE_RELEASE_DEBUG": "false",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_STRIP": "true",
}


class NotBuilt(Exception):
    """There is no such relay here; the message says why."""


def relay_program() -> Path:
    """Waits for a build that is in progress. Raises NotBuilt."""
    if given := os.environ.get("PP_IROH_RELAY"):
        return Path(given)
    program = _folder() / "bin" / "iroh-relay"
    if not program.exists():
        with _lock():
            pass
    if not program.exists():
        raise NotBuilt(f"there is no iroh-relay {relay_version()} here; {BUILD} builds it, with cargo")
    return program


def relay_version() -> str:
    """The version of iroh's relay protocol inside the installed wheel, as its sources were named when it was built."""
    [library] = Path(iroh.__file__).parent.glob("libiroh_ffi.*")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = re.search(rb"/iroh-relay-(\d+\.\d+\.\d+)/", text)
        if found is None:
            raise NotBuilt(f"{library} does not say which iroh-relay it goes with")
        return found[1].decode()


def has_cargo() -> bool:
    """Whether it could be built here."""
    return _cargo() is not None


def build() -> None:
    """Raises NotBuilt."""
    with _lock():
        folder = _folder()
        if (folder / "bin" / "iroh-relay").exists():
            return
        cargo = _cargo()
        if cargo is None:
            raise NotBuilt("there is no cargo here, which builds iroh-relay")
        crate = ("iroh-relay", "--version", relay_version(), "--locked")
        features = ("--no-default-features", "--features", "server")
        target = folder / "target"
        done = subprocess.run(
            [cargo, "install", *crate, *features, "--quiet", "--root", str(folder), "--target-dir", str(target)],
            env={**os.environ, **_SETTINGS},
            timeout=_BUILD_S,
            check=False,
        )
        shutil.rmtree(target, ignore_errors=True)
        if done.returncode != 0:
            raise NotBuilt(f"cargo ended with status {done.returncode}")


def _cargo() -> str | None:
    return shutil.which("cargo", path=f"{os.environ.get('PATH', os.defpath)}:{Path.home()}/.cargo/bin")


def _folder() -> Path:
    return default_cache_dir() / f"iroh-relay-{relay_version()}"


@contextmanager
def _lock() -> Iterator[None]:
    """One builds, others wait. Raises NotBuilt when that takes too long."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + _BUILD_S
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise NotBuilt("another process has been building iroh-relay for too long") from None
                time.sleep(_LOOK_S)
        yield


if __name__ == "__main__":
    argparse.ArgumentParser(prog=BUILD, description=__doc__).parse_args()
    try:
        build()
        print(relay_program())
    except NotBuilt as reason:
        sys.exit(f"iroh-relay was not built: {reason}")
