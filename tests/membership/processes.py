"""Clusters of real processes, and what each of them said and when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

from ppsmoke.membership.patience import LOCAL_SILENCE_S
from tests.transport.kit import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Node:
    """One process. `lines`: what it said, in order; times in it are on the clock that all processes share."""

    def __init__(self, name: str, stages: int, silence_s: float, seed_ticket: str = "") -> None:
        self.name = name
        self.stage = None if name == "orchestrator" else int(name.split()[1])
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        seed = [seed_ticket] if seed_ticket else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.membership.helper_node", name, str(stages), str(silence_s), *seed],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.errors = b""
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def until(self, what: str, find: Callable[[list[dict[str, Any]]], Any], seconds: float = PATIENCE_S) -> Any:
        """What `find` gives for the lines so far, once it is something."""
        ends = time.monotonic() + seconds
        with self._changed:
            while not (found := find(self.lines)):
                left_s = ends - time.monotonic()
                assert left_s > 0, f"{self.name} did not see {what} within {seconds:g} s: {self.lines}"
                self._changed.wait(left_s)
            return found

    def state_of(self, stage: int | None) -> str | None:
        said = [line["state"] for line in list(self.lines) if "state" in line and line["member"] == stage]
        return said[-1] if said else None

    def saw(self, stage: int | None, state: str, since: float = 0.0, seconds: float = PATIENCE_S) -> float:
        """When it saw `stage` enter `state`, waiting for it."""

        def find(lines: list[dict[str, Any]]) -> float | None:
            times = (x["at"] for x in lines if x.get("state") == state and x["member"] == stage and x["at"] >= since)
            return next(times, None)

        at: float = self.until(f"stage {stage} {state}", find, seconds)
        return at

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; when."""
        at = time.monotonic()
        os.kill(self.process.pid, number)
        return at

    def rows(self) -> list[list[Any]]:
        """Its table: stage, state, incarnation, round trip, path of each member."""
        count = sum("rows" in line for line in self.lines)
        self.say("rows")
        rows: list[list[Any]] = self.until("its table", lambda x: [y["rows"] for y in x if "rows" in y][count:])[0]
        return rows

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def processes(stages: int, silence_s: float = LOCAL_SILENCE_S) -> Iterator[list[Node]]:
    """The orchestrator and `stages` stages, started one after another; each has joined."""
    nodes: list[Node] = []
    try:
        nodes.append(Node("orchestrator", stages, silence_s))
        ticket = nodes[0].until("its join", joined)["ticket"]
        nodes += [Node(f"stage {index}", stages, silence_s, ticket) for index in range(stages)]
        for node in nodes:
            node.until("its join", joined)
        yield nodes
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            assert b"Traceback" not in node.errors, node.errors.decode()


def in_one_of_three(scenario: Callable[[], None]) -> Callable[[], None]:
    """For bounds on how soon something is noticed: what else a machine does can spoil one try, the code spoils all."""

    @wraps(scenario)
    def tried() -> None:
        for _ in range(2):
            with suppress(AssertionError):
                return scenario()
        return scenario()

    return tried


def joined(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((line for line in lines if line.get("joined")), None)
