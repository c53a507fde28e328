"""A chain in a lab that is struck while it decodes: what its user sees, and for how long nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.e2e.kit import Box, Done, Program

_LOOK_S = 0.02


@dataclass(frozen=True)
class Observed:
    """`silence_s`: the longest time without text from the strike on; `ended_s`: from the strike to the end.

    `told`: the lines on stderr since the strike.
    """

    done: Done
    silence_s: float
    ended_s: float
    told: list[str]

    def describe(self) -> str:
        """For whoever writes down what happens."""
        what = self.done.errors[0] if self.done.errors else "all tokens"
        lines = [
            f"status {self.done.status}, {what}",
            f"silent {self.silence_s:.1f} s, ended after {self.ended_s:.1f} s",
        ]
        return "\n  ".join([*lines, *self.told])


def observe(
    box: Box,
    command: Sequence[str],
    env: Mapping[str, str],
    strike: Callable[[Program], None],
    *,
    deadline_s: float,
    text_first: int = 1,
) -> Observed:
    """Run the command, strike once it printed `text_first` bytes of text, and watch until it ends."""
    program = box.start(program=tuple(command), env=env)
    while len(program.out) < text_first:
        program.wait_output()
        time.sleep(_LOOK_S)
    watch = _Watch(program)
    lines_before = len(program.lines)
    struck = time.monotonic()
    strike(program)
    try:
        done = program.end(deadline_s)
    finally:
        ended = time.monotonic()
        watch.end()
    return Observed(done, watch.longest_s, ended - struck, program.lines[lines_before:])


class _Watch(threading.Thread):
    """How long the output has been still at most."""

    def __init__(self, program: Program) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self._program = program
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        last, since = len(self._program.out), time.monotonic()
        while not self._over.wait(_LOOK_S):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - since)
            if len(self._program.out) != last:
                last, since = len(self._program.out), now

    def end(self) -> None:
        self._over.set()
        self.join()
