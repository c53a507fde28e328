"""The doctor on a healthy machine, and on machines that lack something a user's machine may lack."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppsmoke import doctor_checks
from ppsmoke.doctor import Check, describe, run_check
from ppsmoke.doctor_checks import PINNED, Finding, Status, options_finding, vast_key_finding
from ppsmoke.doctor_probe import ProbeProcess, compiler_finding, device_finding
from ppsmoke.errors import DeviceUnavailable, NotEnoughDisk
from tests.cli.kit import PATIENCE_S, command, environment, run_cli

CHECKS = [
    *("version", "platform", "iroh", "tinygrad", "libraries", "compiler", "device"),
    *("ports", "relay", "cache", "model", "memory", "logs", "options", "vast.ai"),
]
SECRET = "0123456789abcdef-never-printed"


def by_name(stdout: str) -> dict[str, dict[str, Any]]:
    found = json.loads(stdout)
    assert [entry["check"] for entry in found] == CHECKS
    return {entry["check"]: entry for entry in found}


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def without_compilers(tmp_path: Path) -> dict[str, str]:
    """No clang on the PATH, and a ziglang package that holds no compiler."""
    empty = tmp_path / "bin"
    empty.mkdir()
    shim = tmp_path / "shim"
    (shim / "ziglang").mkdir(parents=True)
    (shim / "ziglang" / "__init__.py").touch()
    python_path = os.pathsep.join(filter(None, (str(shim), os.environ.get("PYTHONPATH"))))
    return {"PATH": str(empty), "PYTHONPATH": python_path}


def test_a_healthy_machine(tmp_path: Path) -> None:
    env = environment(tmp_path, VAST_API_KEY=SECRET)
    done = run_cli(env, "doctor", "--json")

    checks = by_name(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name for name, entry in checks.items() if entry["status"] not in ("ok", "warn")} == set()
    for name in ("version", "iroh", "tinygrad", "compiler", "device", "ports", "relay", "cache", "logs", "vast.ai"):
        assert checks[name]["status"] == "ok", checks[name]
    assert "127.0.0.1" not in checks["ports"]["found"]
    assert "IPv4" in checks["ports"]["found"]
    assert checks["model"]["status"] == "warn"
    assert "pp-smoke-run models fetch smollm2:135m" in checks["model"]["remedy"]
    assert str(tmp_path / "cache") in checks["cache"]["found"]
    assert "VAST_API_KEY" in checks["vast.ai"]["found"]
    assert SECRET not in done.stdout + done.stderr
    assert done.stderr == ""
    assert not (tmp_path / "state").exists()


def test_without_a_compiler(tmp_path: Path) -> None:
    broken = script(tmp_path / "my-cc", "echo 'error: no such target' >&2; exit 1")
    done = run_cli(environment(tmp_path, CC=str(broken), **without_compilers(tmp_path)), "doctor")

    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == CHECKS
    compiler = next(line for line in lines if line.split()[1] == "compiler")
    assert compiler.startswith("fail  compiler")
    assert "my-cc: error: no such target" in compiler
    assert "fix: pip install ziglang" in compiler
    assert next(line for line in lines if line.split()[1] == "device").startswith("-  ")
    assert "--seed cannot work here yet: compiler" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path / "file" / "cache"
    done = run_cli(environment(tmp_path, PP_SMOKE_CACHE=str(cache)), "doctor", "--json", "--device", "CPU")

    checks = by_name(done.stdout)
    assert done.returncode == 3
    assert checks["cache"]["status"] == "fail"
    assert f"{tmp_path / 'file'} is not a folder" in checks["cache"]["found"]
    assert "PP_SMOKE_CACHE" in checks["cache"]["remedy"]
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    done = run_cli(environment(tmp_path), "doctor", "--json", "--device", "NOSUCH")

    device = by_name(done.stdout)["device"]
    assert done.returncode == 3
    assert device["status"] == "fail"
    assert "NOSUCH" in device["found"]
    assert device["remedy"]


@pytest.mark.parametrize(("package", "check"), [("iroh", "iroh"), ("tokenizers", "libraries")])
def test_a_library_that_does_not_load(tmp_path: Path, package: str, check: str) -> None:
    (tmp_path / "shim" / package).mkdir(parents=True)
    (tmp_path / "shim" / package / "__init__.py").write_text("raise ImportError('libthing.so.1: cannot open')")
    python_path = os.pathsep.join(filter(None, (str(tmp_path / "shim"), os.environ.get("PYTHONPATH"))))
    program = "import os; from ppsmoke.doctor import doctor_command; os._exit(doctor_command(as_json=True))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment(tmp_path, PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    found = by_name(done.stdout)[check]
    assert done.returncode == 3
    assert found["status"] == "fail"
    assert "libthing.so.1: cannot open" in found["found"]
    assert "install pp-smoke-run again" in found["remedy"]
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_the_compiler_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "compiler.pid"
    stuck = script(
        tmp_path / "my-cc", f"echo $$ > {pid_file}.new; /bin/mv {pid_file}.new {pid_file}; exec /bin/sleep 300"
    )
    env = environment(tmp_path, CC=str(stuck), **without_compilers(tmp_path))
    with subprocess.Popen(
        command("doctor", "--device", "CPU"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not pid_file.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert process.stdout is not None
        while "libraries" not in process.stdout.readline():  # all that comes before the compiler
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)  # the compiler's own limit, 60 s, must not be what ended it

    assert process.returncode == 130
    assert "SIGINT" in err
    assert "Traceback" not in out + err
    compiler = int(pid_file.read_text())
    _, alive = psutil.wait_procs([psutil.Process(compiler)] if psutil.pid_exists(compiler) else [], timeout=PATIENCE_S)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    env = environment(tmp_path, **without_compilers(tmp_path))
    with subprocess.Popen(command("doctor"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_check_that_hangs_has_failed() -> None:
    release = threading.Event()

    def look() -> Finding:
        release.wait(PATIENCE_S)
        return Finding(Status.OK, "too late")

    finding = run_check(Check("disk", 0.05, look))
    release.set()
    assert finding == Finding(Status.FAIL, "no answer within 0.05 s")


def test_a_check_that_raises_has_failed() -> None:
    def fault() -> Finding:
        raise NotEnoughDisk("the disk is full", remedy="free some")

    def surprise() -> Finding:
        raise ZeroDivisionError("division\nby zero")

    assert run_check(Check("disk", PATIENCE_S, fault)) == Finding(Status.FAIL, "the disk is full", "free some")
    assert run_check(Check("disk", PATIENCE_S, surprise)) == Finding(Status.FAIL, "ZeroDivisionError: division by zero")


def test_a_probe_that_crashes_or_says_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    def report_of(program: str) -> dict[str, Any]:
        probe = ProbeProcess("")
        monkeypatch.setattr(probe, "_command", [sys.executable, "-c", program])
        with probe:
            return probe.report()

    killed = report_of("import os; os.kill(os.getpid(), 4)")
    assert device_finding(killed) == Finding(Status.FAIL, "the test of the device was killed by SIGILL")
    assert compiler_finding(killed).status is Status.UNUSED
    silent = report_of("raise SystemExit('no such\\nthing')")
    assert device_finding(silent).found == "the test of the device ended with status 1: thing"


def test_findings_of_the_probe() -> None:
    clang = {"command": "/usr/bin/clang", "version": "clang 19.1.0"}
    works = {"device": "CPU", "compiler": clang, "kernel_s": 0.4, "error": None}
    assert compiler_finding(works) == Finding(Status.OK, "clang 19.1.0, compiles kernels: /usr/bin/clang")
    assert device_finding(works).status is Status.OK

    on_gpu = {"device": "CUDA", "compiler": None, "kernel_s": 0.4, "error": None}
    assert compiler_finding(on_gpu) == Finding(Status.UNUSED, "none needed for CUDA")
    assert device_finding(on_gpu).status is Status.OK

    refused = {"code": DeviceUnavailable.code, "message": "no driver", "remedy": "use the CPU"}
    no_gpu = {"device": None, "compiler": None, "kernel_s": None, "error": refused}
    assert compiler_finding(no_gpu).status is Status.UNUSED
    assert device_finding(no_gpu) == Finding(Status.FAIL, "no driver", "use the CPU")


def test_a_terminal_gets_lines_that_fit() -> None:
    finding = Finding(Status.FAIL, "a reason of many words " * 6 + "/a/path/" + "x" * 70, "do this and that " * 6)
    lines = describe("compiler", finding, 80)
    assert lines[0].startswith("fail  compiler   a reason")
    assert {line[:17] for line in lines[1:]} == {" " * 17}
    assert [line for line in lines if len(line) > 80] == [" " * 17 + "/a/path/" + "x" * 70]
    assert sum("fix: do this" in line for line in lines) == 1
    assert len(describe("compiler", finding, None)) == 1


def test_where_the_key_is(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert vast_key_finding(home).status is Status.UNUSED
    (tmp_path / ".vast_api_key").write_text(SECRET)
    old = vast_key_finding(home)
    assert old.status is Status.OK
    assert str(tmp_path / ".vast_api_key") in old.found
    (tmp_path / ".config" / "vastai").mkdir(parents=True)
    (tmp_path / ".config" / "vastai" / "vast_api_key").write_text(SECRET)
    assert str(tmp_path / ".config" / "vastai") in vast_key_finding(home).found
    assert SECRET not in vast_key_finding({**home, "VAST_API_KEY": SECRET}).found


def test_pinned_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    pinned = dict(line.split("==") for line in project["dependencies"] if "==" in line)
    assert pinned == PINNED


def test_options_that_are_set_elsewhere_are_told_by_their_places(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("seed = true\napi-key = 'hush'\n")
    found = options_finding({"PP_NUM_STAGES": "3", "PP_CONFIG": str(file), "HOME": str(tmp_path)})
    assert found.status is Status.OK
    assert found.found == f"PP_NUM_STAGES; {file} line 1: seed; {file} line 2: api-key"
    file.write_text("sede = true")
    found = options_finding({"PP_CONFIG": str(file), "HOME": str(tmp_path)})
    assert (found.status, found.remedy) == (Status.FAIL, "Did you mean seed?")
    assert options_finding({"HOME": str(tmp_path)}).found.startswith("none")


def test_a_state_folder_that_may_not_be_written_to_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes the temporary folder then; with any other trouble it ends."""
    for number, status in ((errno.EROFS, Status.WARN), (errno.EACCES, Status.WARN), (errno.ENOSPC, Status.FAIL)):
        said = os.strerror(number).lower()
        monkeypatch.setattr(doctor_checks, "_why_not_writable", lambda _path, said=said: said)
        finding = doctor_checks.check_logs()
        assert finding.status is status
        assert "--log-dir" in (finding.remedy or "")
        assert ("--hold cannot work" in finding.found) == (status is Status.WARN)


def test_a_relay_that_every_run_would_use_is_tried() -> None:
    finding = doctor_checks.relay_finding({"PP_RELAY_URL": "http://127.0.0.1:9", "PP_CONFIG": ""})
    assert finding.status is Status.FAIL
    assert finding.found.startswith("PP_RELAY_URL: the relay http://127.0.0.1:9 cannot be reached")
    assert "--relay-url" in (finding.remedy or "")
    assert doctor_checks.relay_finding({"HOME": "/nonexistent"}).found == "not used by --seed"
