"""The code of this process as a wheel, and the way it takes to a machine that has nothing of it."""

from __future__ import annotations

import asyncio
import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from ppsmoke import __version__
from ppsmoke.files.service import FileService
from ppsmoke.files.wheel import build_wheel
from ppsmoke.vast.ship import ship_environment
from tests.files.test_file_service import with_service
from tests.transport.kit import RUN_ID, TOKEN


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_pip_installs_the_wheel_and_its_node_runs(wheel: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True)
    # -S and -I: nothing of this checkout, only what was installed there.
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; from ppsmoke.node_cli import main; main(['--version'])"
    others = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": others, "PATH": os.environ["PATH"]},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == f"pp-gpu-node {__version__}"
    assert (tmp_path / "bin" / "pp-gpu-node").is_file()
    assert list((tmp_path / "ppsmoke_worker").rglob("*.c"))  # the kernels' text


def test_the_record_names_every_file_with_its_hash(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (record,) = [name for name in packed.namelist() if name.endswith("/RECORD")]
        rows = {row[0]: row[1] for row in csv.reader(packed.read(record).decode().splitlines())}
        assert set(rows) == set(packed.namelist())
        for name, said in rows.items():
            if name != record:
                digest = base64.urlsafe_b64encode(hashlib.sha256(packed.read(name)).digest()).rstrip(b"=").decode()
                assert said == f"sha256={digest}"
        assert not [name for name in rows if "__pycache__" in name]


def test_the_same_code_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def run_bootstrap(folder: Path, ticket: str, token: bytes = TOKEN) -> subprocess.CompletedProcess[str]:
    text = zlib.decompress(base64.b64decode(ship_environment()["PP_BOOTSTRAP"])).decode()
    # What a rented machine has: Python and iroh, and not one module of this package.
    refuse = "import sys; sys.modules['ppsmoke'] = None\n"
    return subprocess.run(
        [sys.executable, "-P", "-c", refuse + text, str(folder)],
        env={"SEED_ADDR": ticket, "PP_RUN_ID": RUN_ID, "PP_JOIN_TOKEN": token.hex(), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_machine_with_python_and_iroh_gets_the_wheel(tmp_path: Path, wheel: Path) -> None:
    async def body(ticket: str, service: FileService, _: Callable[[], None]) -> None:
        done = await asyncio.to_thread(run_bootstrap, tmp_path / "there", ticket)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(tmp_path / "there" / wheel.name)

    (tmp_path / "there").mkdir()
    with_service(tmp_path, {wheel.name: wheel.read_bytes(), "m.gguf": b"x"}, body)
    assert (tmp_path / "there" / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_machine_without_the_token_does_not(tmp_path: Path, wheel: Path) -> None:
    async def body(ticket: str, service: FileService, _: Callable[[], None]) -> None:
        done = await asyncio.to_thread(run_bootstrap, tmp_path, ticket, b"another token")
        assert done.returncode != 0
        assert "token is wrong" in done.stderr

    with_service(tmp_path, {wheel.name: wheel.read_bytes()}, body)


def test_the_reader_needs_the_version_of_iroh_that_is_here() -> None:
    assert ship_environment()["PP_BOOTSTRAP_NEEDS"] == f"iroh=={metadata.version('iroh')}"
