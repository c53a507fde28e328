"""Shell completion: the script that a shell loads, and what the shell then offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import environment

_PROGRAM = "pp-smoke-run"


def shell(home: Path, *command: str, **more: str) -> str:
    """What the command prints, with the program on its PATH."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        env=environment(home, PATH=path, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["bash", "zsh", "fish"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A shell's name and the script that it is to load."""
    path = tmp_path / "completion"
    path.write_text(shell(tmp_path, _PROGRAM, _PP_SMOKE_RUN_COMPLETE=f"source_{request.param}"))
    return request.param, path


def test_a_shell_completes_an_option(script: tuple[str, Path], tmp_path: Path) -> None:
    name, path = script
    typed = f"{_PROGRAM} --num-st"
    if name == "zsh" or shutil.which(name) is None:
        # What the shell would be told by the program itself.
        assert _PROGRAM in path.read_text()
        how = {"COMP_WORDS": typed, "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": typed}
        said = shell(tmp_path, _PROGRAM, _PP_SMOKE_RUN_COMPLETE=f"complete_{name}", **how)
    elif name == "bash":
        call = f"_pp_smoke_run_completion {_PROGRAM}; echo ${{COMPREPLY[@]}}"
        call = f". {path}; COMP_WORDS=({typed}); COMP_CWORD=1; {call}"
        said = shell(tmp_path, "bash", "-c", call)
    else:
        said = shell(tmp_path, "fish", "-c", f"source {path}; complete -C '{typed}'")
    assert "--num-stages" in said
    assert "--prompt" not in said


def test_values_are_offered_too(tmp_path: Path) -> None:
    how = {"COMP_WORDS": f"{_PROGRAM} --model sm", "COMP_CWORD": "2", "PP_SEED": "1", "PP_CONFIG": "/no/such/file"}
    assert "smollm2:135m" in shell(tmp_path, _PROGRAM, _PP_SMOKE_RUN_COMPLETE="complete_bash", **how)
