"""Instances that are real processes: the very command and environment of a create call, run on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

_MARK = "PP_EMULATOR_INSTANCE"
_END_S = 5.0
_MOST_SCANS = 10


class Nodes(Protocol):
    """What runs inside instances."""

    def start(self, instance_id: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Begin; a command that cannot be started counts as one that ended with 127."""

    def exit_status(self, instance_id: int) -> int | None:
        """None while it runs."""

    def output(self, instance_id: int) -> str:
        """All that it has written."""

    def stop(self, instance_id: int) -> None:
        """End it and all that it started. Nothing happens for an unknown one."""


@dataclass(slots=True)
class _Box:
    process: subprocess.Popen[bytes] | None
    home: Path


class ProcessNodes:
    """Each instance has a directory of its own as home and working directory; programs come from this PATH."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.environ.get("PATH", os.defpath)
        self.root = Path(tempfile.mkdtemp(prefix="vast-emulator-"))
        self._boxes: dict[int, _Box] = {}

    def start(self, instance_id: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        home = self.root / str(instance_id)
        home.mkdir()
        variables = {name: value for name, value in environment.items() if not name.startswith("-")}
        own = {"PATH": self.path, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        with (home / "output.log").open("wb") as output:
            try:
                process = subprocess.Popen(
                    list(command),
                    cwd=home,
                    env={**own, **variables, _MARK: self._mark(instance_id)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"{error}\n".encode())
                process = None
        self._boxes[instance_id] = _Box(process, home)

    def exit_status(self, instance_id: int) -> int | None:
        box = self._boxes.get(instance_id)
        return 127 if box is None or box.process is None else box.process.poll()

    def output(self, instance_id: int) -> str:
        box = self._boxes.get(instance_id)
        if box is None:
            return ""
        return (box.home / "output.log").read_text(errors="replace")

    def stop(self, instance_id: int) -> None:
        box = self._boxes.pop(instance_id, None)
        if box is None:
            return
        mark = self._mark(instance_id)
        # A container takes everything in it down, also what began a session of its own, or begins while it ends.
        for _ in range(_MOST_SCANS):
            inside = [process for process in psutil.process_iter() if _is_inside(process, mark)]
            if not inside:
                break
            for process in inside:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            _wait_ended(inside)
        if box.process is not None:
            box.process.kill()  # one that cleared its environment
            box.process.wait()
        # Its files stay until `close`: to delete an installation takes longer than a call may.

    def _mark(self, instance_id: int) -> str:
        """Another emulator on this machine has the same ids."""
        return f"{self.root.name}-{instance_id}"

    def stop_all(self) -> None:
        for instance_id in list(self._boxes):
            self.stop(instance_id)

    def close(self) -> None:
        """End all instances, and remove their files: minutes, where they installed something."""
        self.stop_all()
        shutil.rmtree(self.root, ignore_errors=True)


def _wait_ended(processes: Sequence[psutil.Process]) -> None:
    """Until none runs any more; whether somebody has buried them does not matter."""
    ends = time.monotonic() + _END_S
    while any(_runs(process) for process in processes) and time.monotonic() < ends:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_inside(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):
        return False
