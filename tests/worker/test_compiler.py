from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from ppsmoke_worker import compiler
from ppsmoke_worker.compiler import find_compiler

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.errors import CompilerUnavailable
from tests.worker.harness import PipedWorker


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_compiler_that_does_not_work_is_passed_over(tmp_path: Path) -> None:
    broken = script(tmp_path / "clang", "echo 'error: no such target' >&2; exit 1")
    silent = script(tmp_path / "cc", "exit 0")
    found = find_compiler({**os.environ, "CC": str(silent), "PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path)
    assert found.command[0] not in (str(broken), str(silent))


@pytest.mark.parametrize("hangs", ["always", "when it is asked for its version"])
def test_a_compiler_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str) -> None:
    works = find_compiler(os.environ, tmp_path)
    monkeypatch.setattr(compiler, "_TRY_S", 5.0)
    command = " ".join(f"'{part}'" for part in works.command)
    guard = "" if hangs == "always" else '[ "$1" = --version ] || ' + f'exec {command} "$@"; '
    hanging = script(tmp_path / "slow clang", f"{guard}exec sleep 600")
    found = find_compiler({**os.environ, "CC": str(hanging)}, tmp_path)
    assert found.command[0] != str(hanging)


def test_a_kernel_that_is_never_compiled_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = find_compiler(os.environ, tmp_path)
    monkeypatch.setattr(compiler, "_COMPILE_S", 0.2)
    hanging = script(tmp_path / "slow clang", "exec sleep 600")
    with pytest.raises(CompilerUnavailable, match=r"was not done within 0\.2 s"):
        compiler.compile_object(replace(works, command=(str(hanging),)), "x86_64", (), "")


def test_the_named_compiler_comes_first(tmp_path: Path) -> None:
    works = find_compiler(os.environ, tmp_path)
    wrapper = script(tmp_path / "my clang", f"""exec {" ".join(f"'{part}'" for part in works.command)} "$@" """)
    found = find_compiler({**os.environ, "CC": str(wrapper)}, tmp_path)
    assert found.command == (str(wrapper),)
    assert found.identity != works.identity


def test_without_any_compiler_the_error_says_what_was_tried_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    script(tmp_path / "clang", "echo 'clang: error: unable to frobnicate' >&2; exit 1")
    with pytest.raises(CompilerUnavailable, match="unable to frobnicate") as caught:
        find_compiler({"PATH": str(tmp_path)}, tmp_path)
    assert caught.value.remedy is not None
    assert "pip install ziglang" in caught.value.remedy


def test_the_cache_directory_follows_the_usual_variables(tmp_path: Path) -> None:
    assert default_cache_dir({"PP_SMOKE_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/x"}) == tmp_path
    assert default_cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/pp-smoke-run")
    assert default_cache_dir({}).name == "pp-smoke-run"


def test_the_caches_name_changes_with_the_version_of_tinygrad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = find_compiler(os.environ, tmp_path).identity
    monkeypatch.setattr(compiler.metadata, "version", lambda name: f"another {name}")
    assert find_compiler(os.environ, tmp_path).identity != before


def test_a_kernel_cache_that_cannot_be_written_is_done_without(tmp_path: Path, tiny_model: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the directory should be")
    assert any("kernels are not cached" in line for line in log_of_a_start(cache, tiny_model, "kernels"))


@pytest.mark.parametrize("engine", ["kernels", "plain"])
def test_a_damaged_kernel_cache_begins_anew(engine: str, tmp_path: Path, tiny_model: Path) -> None:
    cache = tmp_path / "cache"
    identity = find_compiler(os.environ, tmp_path).identity
    (cache / "kernels").mkdir(parents=True)
    (cache / "kernels" / f"cpu-{identity}.db").write_bytes(b"no database" * 1000)
    assert any("was damaged and begins anew" in line for line in log_of_a_start(cache, tiny_model, engine))
    assert not any("cache" in line for line in log_of_a_start(cache, tiny_model, engine))


def log_of_a_start(cache: Path, model: Path, engine: str) -> list[str]:
    arguments = ("--model", str(model), "--stage", "1", "--num-stages", "8", "--device", "CPU", "--engine", engine)
    with PipedWorker(arguments, {"PP_SMOKE_CACHE": str(cache)}) as worker:
        assert worker.ready()["engine"] == engine
        return list(worker.log)


def test_a_worker_leaves_nothing_in_its_current_directory_or_temp(tmp_path: Path, tiny_model: Path) -> None:
    cache, temp = tmp_path / "cache", tmp_path / "temp"
    temp.mkdir()
    arguments = ("--model", str(tiny_model), "--stage", "1", "--num-stages", "8", "--device", "CPU")
    env = {"PP_SMOKE_CACHE": str(cache), "TMPDIR": str(temp), "HOME": str(tmp_path)}
    with PipedWorker(arguments, env) as worker:
        worker.ready()
    assert list(temp.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "temp"]


def test_everyday_variables_that_tinygrad_would_read_do_not_reach_it(tiny_model: Path) -> None:
    arguments = ("--model", str(tiny_model), "--stage", "1", "--num-stages", "8", "--device", "CPU")
    env = {"NO_COLOR": "true", "TRAINING": "yes", "DEBUG": "*", "IMAGE": "app:latest", "DEFAULT_FLOAT": "bfloat16"}
    with PipedWorker(arguments, env) as worker:
        assert worker.ready()["device"] == "CPU"
