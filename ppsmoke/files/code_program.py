"""`python -m ppsmoke.files.code_program`: fetch the caller's new code for a node that runs already, and try it.

A process of its own beside the node, whose environment it has. It reads one line of JSON, `{"file", "sha256",
"folder"}`, and writes one: `{"python_path"}`, the PYTHONPATH with which the new code is what runs, or `{"error"}`, why
it cannot. When its input ends before that, it ends.

Nothing is installed over anything: the wheel is unpacked into a folder of its own, which goes in front of Python's
path; code that was sent before and does not run any more is removed. That serves for code with the very requirements of
what runs now; other ones are refused, as is another version.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from ppsmoke import __version__
from ppsmoke.errors import EnvironmentFault, PpError
from ppsmoke.files.code_folders import code_folder, remove_code
from ppsmoke.files.wheel import DISTRIBUTION
from ppsmoke.helper_program import read_request, run_program, write_line
from ppsmoke.stage.new_code import CODE_PREFIX
from ppsmoke.stage.orchestrator_files import orchestrator_files
from ppsmoke.stage.settings import NodeSettings, parse_settings

_TRY_S = 60.0
_FRAME = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)


def main() -> int:
    """Exit status 0 with a path, 1 with an error."""
    request = read_request()
    try:
        settings = parse_settings(os.environ)
        parent = Path(request["folder"]) if request["folder"] else Path.home() / "pp-smoke-run"
        folder = code_folder(parent, request["sha256"])
        remove_code(parent, {folder, *map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep))})
        if not folder.is_dir():
            _unpack(_fetch(settings, request["file"], request["sha256"]), folder)
        path = python_path(folder, os.environ)
        try_code(folder, {**os.environ, "PYTHONPATH": path})
    except PpError as error:
        write_line({"error": error.what})
        return 1
    except (OSError, zipfile.BadZipFile) as error:
        write_line({"error": f"it cannot be unpacked: {error}"})
        return 1
    write_line({"python_path": path})
    return 0


def python_path(folder: Path, environ: Mapping[str, str]) -> str:
    """The PYTHONPATH with which Python finds the code of `folder` first, and no code that was sent before."""
    kept = [
        part
        for part in environ.get("PYTHONPATH", "").split(os.pathsep)
        if part and not Path(part).name.startswith(CODE_PREFIX)
    ]
    return os.pathsep.join([str(folder), *kept])


def try_code(folder: Path, environ: Mapping[str, str]) -> None:
    """Raises EnvironmentFault where the code of `folder`, which is what runs in `environ`, cannot run in place of this
    one: it needs what is not here, is of another version, or its node or its worker cannot even be loaded."""
    wanted, here = _requirements(folder), _requirements(None)
    if here is not None and wanted != here:
        other = sorted((wanted or frozenset()) ^ here)
        raise EnvironmentFault(f"its requirements are not those of the code that runs here: {', '.join(other)}")
    said = _run(("ppsmoke.node_cli", "--version"), environ, folder)
    if said != f"pp-gpu-node {__version__}":
        raise EnvironmentFault(f"its node calls itself {said[:100]!r}, and pp-gpu-node {__version__} runs here")
    _run(("ppsmoke_worker", "--help"), environ, folder)


def _fetch(settings: NodeSettings, name: str, sha256: str) -> bytes:
    with orchestrator_files(settings) as reader:
        sizes = {file.name: file.size for file in reader.files()}
        if name not in sizes:
            raise EnvironmentFault(f"the orchestrator does not offer {name}")
        data = reader.read(name, 0, sizes[name])
    if hashlib.sha256(data).hexdigest() != sha256:
        raise EnvironmentFault("what was fetched is not what was announced")
    return data


def _unpack(wheel: bytes, folder: Path) -> None:
    """Whole or not at all. Raises OSError, BadZipFile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{CODE_PREFIX}") as making:
        whole = Path(making, "whole")
        with tempfile.TemporaryFile(dir=making) as file:
            file.write(wheel)
            with zipfile.ZipFile(file) as packed:
                packed.extractall(whole)
        try:
            os.rename(whole, folder)
        except OSError:
            if not folder.is_dir():  # else another stage of this machine was faster
                raise


def _requirements(folder: Path | None) -> frozenset[str] | None:
    """Of the distribution in `folder`, else of the one that runs here; None where nothing tells."""
    if folder is None:
        with suppress(metadata.PackageNotFoundError):
            return frozenset(metadata.requires(DISTRIBUTION) or ())
        return None
    found = metadata.distributions(name=DISTRIBUTION, path=[str(folder)])
    return next((frozenset(one.requires or ()) for one in found), None)


def _run(module: tuple[str, str], environment: Mapping[str, str], folder: Path) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", *module],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRY_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{' '.join(module)} did not end within {_TRY_S:g} s") from None
    if done.returncode != 0:
        raise EnvironmentFault(f"{' '.join(module)} ended with status {done.returncode}: {_why(done.stderr, folder)}")
    return done.stdout.strip()


def _why(said: str, folder: Path) -> str:
    """The last line of what a program wrote; with the place in the code of `folder`, where a traceback has one."""
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    places = [match for match in _FRAME.finditer(said) if Path(match[1]).is_relative_to(folder)]
    where = f" ({Path(places[-1][1]).relative_to(folder)}, line {places[-1][2]})" if places else ""
    return f"{last[:300]}{where}"


if __name__ == "__main__":
    run_program(main)
