"""The worker's look at compiler and device, as the doctor sees it: a process, its report, two findings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ppsmoke.doctor_checks import Finding, Status
from ppsmoke.signals import signal_name

PROBE_S = 150.0


class ProbeProcess:
    """The worker's own look at compiler and device, begun at once; nothing of it is left when the block ends."""

    def __init__(self, device: str) -> None:
        self._command = [sys.executable, "-P", "-m", "ppsmoke_worker.probe"]
        self._command += ["--device", device] if device else []
        self._process: subprocess.Popen[bytes] | None = None
        self._report: dict[str, Any] | None = None

    def __enter__(self) -> ProbeProcess:
        with suppress(OSError):
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PP_WORKER_PARENT": str(os.getpid())},
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._kill()
        self._process.wait()

    def report(self) -> dict[str, Any]:
        """What the probe printed; a probe that said nothing is an error of the device."""
        if self._report is None:
            self._report = self._read()
        return self._report

    def _read(self) -> dict[str, Any]:
        if self._process is None:
            return _probe_failed("the worker's Python cannot be started")
        try:
            out, log = self._process.communicate(timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            self._kill()
            return _probe_failed(f"compiler and device gave no result within {PROBE_S:g} s")
        with suppress(ValueError):
            answer = json.loads(out)
            if isinstance(answer, dict):
                return answer
        last = (log.decode(errors="replace").strip().splitlines() or [""])[-1][:200]
        return _probe_failed(f"the test of the device {_ended(self._process.returncode)}: {last}".rstrip(": "))

    def _kill(self) -> None:
        """The whole group, with a compiler that the probe started; one that is reaped already has no group."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _probe_failed(message: str) -> dict[str, Any]:
    return {"error": {"code": "worker_failed", "message": message, "remedy": None}}


def _ended(status: int) -> str:
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"


def compiler_finding(report: Mapping[str, Any]) -> Finding:
    """Of the probe's report: which compiler, and that it compiled."""
    error, compiler, device = report.get("error"), report.get("compiler"), report.get("device")
    if error and error["code"] == "compiler_unavailable":
        return Finding(Status.FAIL, error["message"], error["remedy"])
    if compiler:
        version = f"{compiler['version']}, " if compiler["version"] else ""
        return Finding(Status.OK, f"{version}compiles kernels: {compiler['command']}")
    if device and not error:
        return Finding(Status.UNUSED, f"none needed for {device}")
    return Finding(Status.UNUSED, "not tried, see device")


def device_finding(report: Mapping[str, Any]) -> Finding:
    """Of the probe's report: which device, and that it runs a kernel."""
    error, device = report.get("error"), report.get("device")
    if not error:
        return Finding(Status.OK, f"{device}, a test kernel was built and run in {report['kernel_s']:.1f} s")
    if error["code"] == "compiler_unavailable":
        return Finding(Status.UNUSED, "not tried, see compiler")
    return Finding(Status.FAIL, error["message"], error["remedy"])
