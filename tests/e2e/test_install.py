"""What a user installs: a source archive and a wheel that have everything, and programs that run from anywhere.

The libraries that it needs are those of this environment: fetching them again would test the index.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from ppsmoke import __version__
from tests.e2e.kit import Box, stub_text

ROOT = Path(__file__).parents[2]
NAME = f"pp_smoke_run-{__version__}"
NEEDED = {
    *("ppsmoke/py.typed", "ppsmoke_worker/py.typed", "ppsmoke/api.py", "ppsmoke_worker/__main__.py"),
    *(f"ppsmoke_worker/kernels_c/{path.name}" for path in (ROOT / "worker/ppsmoke_worker/kernels_c").iterdir()),
    *(f"ppsmoke/report/{path.name}" for path in (ROOT / "ppsmoke/report").glob("page.*")),
}
BUILD = "import sys, hatchling.build as b; print(getattr(b, f'build_{sys.argv[1]}')(sys.argv[2]))"

pytestmark = pytest.mark.slow


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in a folder whose name has a space; it sees this one's libraries, but not this one's programs."""
    place = tmp_path_factory.mktemp("an environment") / "v"
    call(sys.executable, "-m", "venv", place)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    own = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    (own / "libraries.pth").write_text("\n".join(libraries))
    call(place / "bin" / "python", "-m", "pip", "install", "--quiet", "hatchling")
    return place


@pytest.fixture(scope="module")
def built(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and with the wheel that is built from that."""
    folder = tmp_path_factory.mktemp("dist")
    python = venv / "bin" / "python"
    call(python, "-c", BUILD, "sdist", folder)
    with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    call(python, "-c", BUILD, "wheel", folder, cwd=folder / NAME)
    return folder


def test_the_archives_have_what_runs_and_nothing_that_was_left_lying_about(built: Path) -> None:
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    assert names >= NEEDED
    assert {name.split("/")[0] for name in names} == {"ppsmoke", "ppsmoke_worker", f"{NAME}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]
    unpacked = built / NAME
    for name in ("LICENSE", "README.md", "pyproject.toml", "Makefile", "tests/e2e/test_install.py"):
        assert (unpacked / name).is_file()
    assert not (unpacked / ".venv").exists()


def test_an_installed_wheel_runs_a_chain(venv: Path, built: Path, box: Box) -> None:
    wheel = built / f"{NAME}-py3-none-any.whl"
    call(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)
    program = (str(venv / "bin" / "pp-smoke-run"),)
    assert box.run("--version", program=program).expect(0).text == f"pp-smoke-run {__version__}\n"
    model = "stub:layers=6"
    done = box.run("--seed", "-n", "3", "--model", model, "--max-tokens", "8", program=program).expect(0)
    assert done.text == stub_text("Say hello", 8, model)
    where = box.run("-c", "import ppsmoke; print(ppsmoke.__file__)", program=(str(venv / "bin" / "python"),))
    assert where.text.startswith(str(venv)), "the test must not have run this checkout"
