"""For tests: the real command line in a process of its own, renting from an emulator in this one."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.kit import PATIENCE_S, command, environment
from tests.vast.emulated import KEY, SCALE, Emulated, emulated
from tests.vast_emulator.nodes import Nodes

_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
STUB = ("--model", "stub:layers=6", "--prompt", "hello")


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        body = json.loads(self.out)
        assert isinstance(body, dict)
        return body

    def refused(self, status: int, *words: str) -> Said:
        """It ended with `status` and one error that has these words."""
        assert self.status == status, self.err
        assert len(re.findall(r"^error: ", self.err, re.MULTILINE)) == 1, self.err
        assert "Traceback" not in self.err
        for word in words:
            assert word.casefold() in self.err.casefold(), self.err
        return self


@dataclass(slots=True)
class Office:
    """An emulator, and a home from which it is rented."""

    cloud: Emulated
    home: Path

    def arguments(self, *arguments: str) -> list[str]:
        return command(*arguments, "--vast-url", self.cloud.url, "--time-scale", str(self.cloud.scale))

    def environment(self, **more: str) -> dict[str, str]:
        return environment(self.home, **{"VAST_API_KEY": KEY, **more})

    def run(self, *arguments: str, **more: str) -> Said:
        """Without a terminal."""
        return self._run(self.arguments(*arguments), more)

    def redeploy(self, **more: str) -> Said:
        """It asks no service for anything."""
        return self._run(command("--redeploy"), more)

    def _run(self, arguments: list[str], more: dict[str, str]) -> Said:
        done = subprocess.run(
            arguments,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def at_a_terminal(self, *arguments: str) -> Iterator[Person]:
        """With stdin and stderr on a terminal, which is the session's own: who closes it hangs up."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _WITH_TERMINAL, *self.arguments(*arguments)],
            env=self.environment(TERM="dumb", COLUMNS="80"),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            start_new_session=True,
        )
        os.close(theirs)
        person = Person(process, ours)
        try:
            with process:
                yield person
        finally:
            process.kill()
            person.hang_up()

    def calls(self, kind: str) -> int:
        """How many calls of a kind the service heard."""
        return sum(heard.call == kind for heard in self.cloud.service.heard)

    def hears(self, kind: str) -> threading.Event:
        """Set with the next call of a kind."""
        heard = threading.Event()
        self.cloud.service.on_call = lambda call, _number: heard.set() if call == kind else None
        return heard

    def rent(self, label: str, age_s: float = 600.0) -> int:
        """An instance that runs since then, whoever made it."""
        service = self.cloud.service
        taken = service.account.taken_machines()
        offer = next(x for x in service.offers if x["machine_id"] not in taken)
        return service.account.rent(offer, {"image": "x", "label": label}, "runs", service.settle() - age_s).instance_id

    def alive(self) -> set[int]:
        """Without the two that every emulated account has."""
        self.cloud.service.wait_for_late_effects()
        return {x.instance_id for x in self.cloud.service.account.ledger.alive()} - set(self.cloud.foreign)


class Person:
    """Who sits at the terminal."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self.seen = ""
        self._terminal: int | None = terminal

    def wait_for(self, text: str) -> None:
        """Read on until it was shown."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            assert self._read(1.0), f"it ended without {text!r}: {self.seen}"

    def hang_up(self) -> None:
        """Close the terminal. Safe to call twice."""
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def types(self, text: str) -> None:
        assert self._terminal is not None
        os.write(self._terminal, text.encode())

    def end(self) -> Said:
        """What it came to."""
        while self._read(PATIENCE_S):
            pass
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        return Said(self.process.wait(PATIENCE_S), out, self.seen.replace("\r\n", "\n"))

    def _read(self, wait_s: float) -> bool:
        """False at the end."""
        if self._terminal is None:
            return False
        if not select.select([self._terminal], [], [], wait_s)[0]:
            return True
        data = b""
        with suppress(OSError):  # the other end was closed
            data = os.read(self._terminal, 4096)
        self.seen += data.decode(errors="replace")
        return bool(data)


@contextmanager
def office(
    home: Path, faults: str = "", *, nodes: Nodes | None = None, scale: float = SCALE, credit: float = 25.0
) -> Iterator[Office]:
    """An emulator for the length of a test; nobody else's instance may be destroyed."""
    with asyncio.Runner() as runner:
        context = emulated(faults, nodes=nodes, scale=scale)
        cloud = runner.run(context.__aenter__())
        try:
            cloud.service.credit = credit
            yield Office(cloud, home)
            assert cloud.service.broken == []
        finally:
            runner.run(context.__aexit__(None, None, None))
