"""Local node processes: one session each, so that a node, its worker and the worker's compilers end together.

The child holds the read end of a pipe (its standard input) whose write end only this process has: when this process
dies, however it dies, the pipe closes and the child ends itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from ppsmoke.errors import DeadlineExceeded, EnvironmentFault, LeftBehind, StageDied
from ppsmoke.logs import log_tail
from ppsmoke.signals import signal_name
from ppsmoke.stage.settings import ADDRESS_PREFIX, PEER_VARIABLE
from ppsmoke.wording import ERROR_PREFIX

NODE = (sys.executable, "-P", "-m", "ppsmoke.node_cli")

LOST_US = 4
"""The exit status of a node that hears from its orchestrator no longer."""

_ENDED_BECAUSE = {
    2: "its environment was wrong",
    3: "it was not let into the run",
    LOST_US: "it had not heard from this process",
}
"""By the exit statuses of `pp-gpu-node`."""
_POLL_S = 0.02
_GONE_S = 3.0


class Child(Protocol):
    """A stage's node as the run holds it. `exited` resolves with its exit status (negative: a signal)."""

    stage_index: int
    exited: asyncio.Future[int]

    async def start(self, environment: Mapping[str, str]) -> None: ...

    async def address(self, deadline_s: float) -> str: ...

    def tell_peers(self, tickets: Sequence[str]) -> None: ...

    async def end(self) -> None: ...

    def death(self) -> StageDied: ...

    def log_tail(self) -> list[str]: ...

    def let_go(self) -> None: ...

    def kill(self) -> None: ...

    @property
    def pid(self) -> int | None: ...


class ChildNode:
    """One `pp-gpu-node` child. `exited` resolves with its exit status (negative: a signal)."""

    def __init__(self, stage_index: int, log_path: Path, command: Sequence[str] = NODE) -> None:
        """`command`: what runs as this node."""
        self.stage_index = stage_index
        self.log_path = log_path
        self._command = tuple(command)
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start the process; its stderr goes to the log file.

        Raises StageDied when it cannot be started, EnvironmentFault when the log cannot be written.
        """
        # A task of its own: a start that is cancelled half-way would leave a process that nobody knows.
        self._starting = asyncio.create_task(self._start(environment))
        await asyncio.shield(self._starting)

    async def _start(self, environment: Mapping[str, str]) -> None:
        try:
            log = self.log_path.open("ab")
        except OSError as error:
            raise EnvironmentFault(
                f"the log {self.log_path} cannot be written: {error.strerror}",
                remedy="Choose another directory with --log-dir.",
                stage=self.stage_index,
                phase="spawn",
            ) from error
        with log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env=dict(environment),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise StageDied(
                    f"stage {self.stage_index}: its node could not be started: {error}",
                    stage=self.stage_index,
                    phase="spawn",
                ) from error
        self._watcher = asyncio.create_task(self._watch())

    async def address(self, deadline_s: float) -> str:
        """The ticket the node prints once its endpoint is bound."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(deadline_s):
                while line := (await self._process.stdout.readline()).decode(errors="replace"):
                    if line.startswith(ADDRESS_PREFIX):
                        return line.removeprefix(ADDRESS_PREFIX).strip()
                await asyncio.shield(self.exited)
        except TimeoutError:
            raise DeadlineExceeded(
                f"stage {self.stage_index}'s node did not print its address within {deadline_s:g} s",
                stage=self.stage_index,
                phase="spawn",
                log_tail=self.log_tail(),
            ) from None
        raise self.death()

    def tell_peers(self, tickets: Sequence[str]) -> None:
        """Give the node, through its lifeline, addresses that were not known when it was started."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{PEER_VARIABLE}={','.join(tickets)}\n".encode())

    def death(self) -> StageDied:
        """The error that says how the process ended, with the last lines of its log."""
        status, tail = self.exited.result(), self.log_tail()
        return StageDied(
            f"stage {self.stage_index}'s node {describe_exit(status, tail)}",
            stage=self.stage_index,
            log_tail=tail,
            remedy=_remedy(status, self.log_path),
        )

    def log_tail(self) -> list[str]:
        return log_tail(self.log_path)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def let_go(self) -> None:
        """Close the child's lifeline: it ends by itself, in order."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """SIGKILL to every process of the child's session, at once and without waiting."""
        if self._process is None:
            return
        for process in _session(self._process.pid):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()

    async def end(self) -> None:
        """Kill what is left of the session and verify that it is gone. Raises LeftBehind."""
        if self._starting is not None:
            await asyncio.wait((self._starting,))
        if self._process is None:
            return
        deadline = asyncio.get_running_loop().time() + _GONE_S
        while remaining := _session(self._process.pid):
            if asyncio.get_running_loop().time() > deadline:
                names = ", ".join(f"{p.pid}" for p in remaining)
                raise LeftBehind(f"stage {self.stage_index}: processes {names} did not end after SIGKILL")
            self.kill()
            await asyncio.sleep(_POLL_S)
        if self._watcher is not None:
            await self._watcher

    async def _watch(self) -> None:
        assert self._process is not None
        self.exited.set_result(await self._process.wait())


def describe_exit(status: int, log_tail: Sequence[str] = ()) -> str:
    """A node's exit status in words, with the node's own from its log: 'was killed by SIGKILL'."""
    if status < 0:
        return f"was killed by {signal_name(-status)}"
    if status not in _ENDED_BECAUSE:
        return f"exited with status {status}"
    said = [line.removeprefix(ERROR_PREFIX).rsplit(" [", 1)[0] for line in log_tail if line.startswith(ERROR_PREFIX)]
    return f"ended because {_ENDED_BECAUSE[status]}: {said[-1] if said else f'status {status}'}"


def _remedy(status: int, log_path: Path) -> str:
    if status == -signal.SIGKILL:
        return (
            "Mostly the kernel does that when memory runs out (dmesg tells): free some, use a smaller model or a lower "
            "--context, and run it again."
        )
    if status == LOST_US:
        return (
            "This process stood still for a while (stopped, asleep) or was overloaded: run it again, with less beside "
            "it or with a higher --silence-timeout."
        )
    return f"Run it again; if it comes back, its log tells more: {log_path}"


def _session(leader: int) -> list[psutil.Process]:
    """Living processes of the session that `leader` leads; a zombie has ended and does not count."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess, psutil.AccessDenied):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
