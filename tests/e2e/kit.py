"""Runs the real programs in a place of their own, and finds every process they leave.

Everything a box starts carries a mark in its environment, which children inherit: after a test no living process on
the machine may carry it. Phases are awaited through `--debug` lines or the first byte of output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens

CLI = (sys.executable, "-P", "-m", "ppsmoke.cli")
NODE = (sys.executable, "-P", "-m", "ppsmoke.node_cli")
SCRIPT = str(Path(sys.executable).with_name("pp-smoke-run"))
NOTICED_S = 5.0
"""How soon a death must have ended the run."""
PATIENCE_S = 60.0
"""For everything whose speed is not the question: this machine may be busy."""
_MARK = "PP_TEST_MARK"
_POLL_S = 0.01


def stub_text(prompt: str, count: int, model: str, seed: int = 0) -> str:
    """The text a chain of stub workers must print."""
    return bytes(stub_ids(prompt, count, model, seed)).decode().rstrip("\0")


def stub_ids(prompt: str, count: int, model: str, seed: int = 0) -> list[int]:
    return stub_tokens(stub_encode(prompt), count, parse_stub_model(model), seed)


def wait_until(what: str, condition: Callable[[], Any], deadline_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition`; fails naming `what`."""
    ends = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < ends, f"{what} did not happen within {deadline_s:g} s"
        time.sleep(_POLL_S)
    return value


@dataclass(frozen=True)
class Done:
    """How a program ended. `took_s`: from the last blow of the test (or its start) to its end."""

    status: int
    out: bytes
    err: str
    took_s: float

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> dict[str, Any]:
        body = json.loads(self.text)
        assert isinstance(body, dict)
        assert self.text.count("\n") == 1, "--json prints one line"
        return body

    @property
    def errors(self) -> list[str]:
        """The error sentences on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def expect(self, status: int) -> Done:
        assert self.status == status, f"exit status {self.status}, expected {status}\n{self.err}\n{self.out[-2000:]!r}"
        return self

    def failed(self, status: int, *parts: str) -> Done:
        """Ended with `status` and one error sentence that has all of `parts`."""
        self.expect(status)
        assert len(self.errors) == 1, self.err
        for part in parts:
            assert part.lower() in self.errors[0].lower(), f"{part!r} is not in {self.errors[0]!r}\n{self.err}"
        return self

    def refused(self, status: int, *parts: str) -> Done:
        """As `failed`, with a way out, and without a traceback or output."""
        self.failed(status, *parts)
        assert "\n  fix: " in self.err, self.err
        assert "Traceback" not in self.err
        assert not self.errors[0].startswith("error: Unexpected"), self.err
        assert self.out == b""
        return self


@dataclass
class Program:
    """One started program: its output as it comes, and blows to it and to its children."""

    process: subprocess.Popen[bytes]
    box: Box
    out: bytearray = field(default_factory=bytearray)
    lines: list[str] = field(default_factory=list)
    struck_at: float = field(default_factory=time.monotonic)
    _readers: list[threading.Thread] = field(default_factory=list)

    def read(self, *, stdout: bool = True) -> None:
        """Begin to collect; without `stdout` nobody reads standard output."""
        if stdout and self.process.stdout is not None:
            self._start(self._read_out, self.process.stdout)
        if self.process.stderr is not None:
            self._start(self._read_err, self.process.stderr)

    def _start(self, work: Callable[[IO[bytes]], None], stream: IO[bytes]) -> None:
        thread = threading.Thread(target=work, args=(stream,), daemon=True)
        thread.start()
        self._readers.append(thread)

    def _read_out(self, stream: IO[bytes]) -> None:
        while data := os.read(stream.fileno(), 65536):
            self.out += data

    def _read_err(self, stream: IO[bytes]) -> None:
        for line in stream:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    # ---- waiting

    def wait_line(self, pattern: str, deadline_s: float = PATIENCE_S) -> re.Match[str]:
        """The first line on stderr that matches."""
        found: re.Match[str] = self._while_alive(
            f"a line {pattern!r}", lambda: next(filter(None, (re.search(pattern, x) for x in self.lines)), None),
            deadline_s,
        )  # fmt: skip
        return found

    def wait_output(self, deadline_s: float = PATIENCE_S) -> bytes:
        """What is on stdout once anything is."""
        self._while_alive("output", lambda: bytes(self.out), deadline_s)
        return bytes(self.out)

    def _while_alive(self, what: str, condition: Callable[[], Any], deadline_s: float) -> Any:
        def check() -> Any:
            ended = self.process.poll() is not None
            if ended:
                self._join()
            value = condition()
            assert value or not ended, f"ended with {self.process.returncode} before {what}\n" + "\n".join(self.lines)
            return value

        return wait_until(what, check, deadline_s)

    def node(self, stage: int) -> int:
        """The pid of a stage's node, once --debug has told it."""
        return int(self.wait_line(rf"stage {stage}: node \w+, pid (\d+)")[1])

    def worker(self, stage: int) -> int:
        """The pid of a stage's worker, once there is one."""
        node = psutil.Process(self.node(stage))

        def find() -> int | None:
            return next((child.pid for child in node.children() if "ppsmoke_worker" in child.cmdline()), None)

        pid: int = wait_until(f"the worker of stage {stage}", find)
        return pid

    def end(self, deadline_s: float = PATIENCE_S) -> Done:
        """Wait for the end; right then nothing that this box started may live."""
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"did not end within {deadline_s:g} s\n" + "\n".join(self.lines) + f"\n{bytes(self.out)[-500:]!r}"
            ) from None
        took_s = time.monotonic() - self.struck_at
        self._join()
        return Done(self.process.returncode, bytes(self.out), "\n".join(self.lines), took_s)

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(10)

    # ---- blows

    def strike(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and start the clock."""
        self.struck_at = time.monotonic()
        os.kill(pid, number)

    def signal(self, number: signal.Signals) -> None:
        self.strike(self.process.pid, number)

    def signal_group(self, number: signal.Signals) -> None:
        """As a terminal does: to every process of the foreground group."""
        self.struck_at = time.monotonic()
        os.killpg(self.process.pid, number)


class Box:
    """Directories of its own and a mark; `close` says what was left behind."""

    def __init__(self, root: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.root = root
        self.tmp = root / "tmp"
        self.state = root / "state"
        self.cwd = root / "cwd"
        for folder in (self.tmp, self.state, self.cwd):
            folder.mkdir()
        self.programs: list[Program] = []

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # The user's model cache stays; what only this machine's shell sets for Python does not count.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PP_"))}
        cache = {name: value for name, value in os.environ.items() if name == "PP_SMOKE_CACHE"}
        own = {
            "TMPDIR": str(self.tmp),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CONFIG_HOME": str(self.root / "config"),  # the user's own options do not count either
            _MARK: self.mark,
        }
        return {**kept, **cache, **own, **(more or {})}

    def start(
        self,
        *arguments: str,
        program: Sequence[str] = CLI,
        env: Mapping[str, str] | None = None,
        read_stdout: bool = True,
        **how: Any,
    ) -> Program:
        """Start a program, reading what it says; `how` goes to Popen."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*program, *arguments],
            env=self.environment(env),
            **{"start_new_session": True, "cwd": self.cwd, **streams, **how},
        )
        started = Program(process, self)
        started.read(stdout=read_stdout)
        self.programs.append(started)
        return started

    def run(self, *arguments: str, deadline_s: float = PATIENCE_S, **how: Any) -> Done:
        return self.start(*arguments, **how).end(deadline_s)

    def living(self) -> list[str]:
        """Every living process on this machine with the mark, in words."""
        return [f"{pid}: {' '.join(command)}" for pid, command, _ in self.processes()]

    def processes(self) -> list[tuple[int, list[str], dict[str, str]]]:
        """(pid, command line, environment) of every living process with the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environ = (entry / "environ").read_bytes()
                if self.mark.encode() not in environ:
                    continue  # a zombie has none
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            pairs = (item.partition("=") for item in environ.decode(errors="replace").split("\0"))
            found.append((int(entry.name), command, {name: value for name, _, value in pairs}))
        return found

    def wait_gone(self, deadline_s: float = NOTICED_S) -> None:
        """Wait until no marked process lives."""
        ends = time.monotonic() + deadline_s
        while left := self.living():
            assert time.monotonic() < ends, f"still alive after {deadline_s:g} s: {left}"
            time.sleep(_POLL_S)

    def logs(self) -> list[Path]:
        return sorted(self.state.glob("pp-smoke-run/runs/*/*.log"))

    def close(self) -> None:
        """Asserts that nothing is left, after killing it."""
        unfinished = [p.process.args for p in self.programs if p.process.poll() is None]
        left = self.living()
        for pid, _, _ in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for program in self.programs:
            program.process.wait(10)
            program._join()
            for stream in (program.process.stdin, program.process.stdout, program.process.stderr):
                if stream is not None:
                    stream.close()
        assert not unfinished, f"the test left it running: {unfinished}"
        assert not left, f"processes left behind: {left}"
        assert not (left_files := sorted(self.tmp.rglob("*"))), f"temporary files left behind: {left_files}"
        assert not (left_here := sorted(self.cwd.rglob("*"))), f"files left in the current directory: {left_here}"
