"""For tests: emulated machines on which the tool is not installed."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vast_emulator.nodes import ProcessNodes

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_OURS = ("pp_smoke_run", "__editable__", "ppsmoke")


def bare_python(folder: Path, *, venv_sees: Path | None = None) -> Path:
    """A `python3` with nothing installed, which finds the index as this process does.

    `venv_sees`: what the environments that it makes find beside their own packages; then there is no index.
    """
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()}
    if venv_sees is not None:
        kept["PIP_NO_INDEX"] = "1"
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in kept.items())
    base = sys._base_executable  # type: ignore[attr-defined]
    sees = ""
    if venv_sees is not None:
        find = "import sysconfig, sys; print(sysconfig.get_path('purelib', 'venv', {'base': sys.argv[1]}))"
        sees = f"""if [ "$1 $2" = "-m venv" ]; then
  {base} "$@" || exit
  echo {shlex.quote(str(venv_sees))} >"$({base} -c {shlex.quote(find)} "$3")/needs.pth"
  exit
fi
"""
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\n{exports}{sees}exec {base} "$@"\n')
    program.chmod(0o755)
    return folder


def our_needs(folder: Path) -> Path:
    """Every package that this process can import, but not the tool's own."""
    folder.mkdir()
    for place in (Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        for package in place.iterdir():
            target = folder / package.name
            if not package.name.startswith(_OURS) and package.suffix != ".pth" and not target.exists():
                target.symlink_to(package)
    return folder


@contextmanager
def machines_that_install(folder: Path) -> Iterator[ProcessNodes]:
    """Without an index: all that the tool needs is there, the tool is not."""
    python = bare_python(folder / "bin", venv_sees=our_needs(folder / "needs"))
    nodes = ProcessNodes(f"{python}:{SYSTEM_PATH}")
    try:
        yield nodes
    finally:
        nodes.close()
