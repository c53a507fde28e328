"""The real program at a terminal of its own, which is emulated: its rows are what a user would see."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import pyte

from tests.e2e.kit import CLI, PATIENCE_S, Box, Program, wait_until

LIVE = {"TERM": "xterm-256color", "CI": "", "NO_COLOR": ""}
"""An environment in which the display draws."""


class Terminal:
    """A pseudo-terminal and what is on it. `rows` has what scrolled away, too; `bytes` is all that was written."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.bytes = bytearray()
        self._screen = pyte.HistoryScreen(width, height, history=100_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._own, self.program_end = pty.openpty()
        self.resize(width, height)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, width: int, height: int) -> None:
        with self._lock:
            fcntl.ioctl(self.program_end, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
            self._screen.resize(height, width)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def show(self, text: str) -> None:
        """As another program that writes there."""
        os.write(self.program_end, text.encode())

    def close(self) -> None:
        os.close(self.program_end)
        self._reader.join(10)
        os.close(self._own)

    def _read(self) -> None:
        # The end of the last program that has it open reads as an error.
        with suppress(OSError):
            while data := os.read(self._own, 65536):
                with self._lock:
                    self.bytes += data
                    self._stream.feed(data)

    def rows(self) -> list[str]:
        with self._lock:
            gone = [
                "".join(row[column].data for column in range(self._screen.columns)) for row in self._screen.history.top
            ]
            rows = [row.rstrip() for row in [*gone, *self._screen.display]]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def shows(self, *parts: str) -> list[str] | None:
        """The rows, where one of them has all the parts."""
        rows = self.rows()
        return rows if any(all(part in row for part in parts) for row in rows) else None

    def wait(self, *parts: str, deadline_s: float = PATIENCE_S) -> list[str]:
        """The rows once one of them has all the parts."""
        rows: list[str] = wait_until(f"{parts} on the screen", lambda: self.shows(*parts), deadline_s)
        return rows

    def wait_for(self, what: str, condition: Callable[[list[str]], bool]) -> list[str]:
        """The rows once they are as wanted."""
        rows: list[str] = wait_until(what, lambda: (rows := self.rows()) and condition(rows) and rows)
        return rows


def start(
    box: Box,
    terminal: Terminal,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    job: bool = False,
) -> Program:
    """The program with the terminal as its own, for the streams that are not given. `job`: in a group but not a session
    of its own, as a shell starts its jobs: else nothing stops on SIGTSTP."""

    def take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    end = terminal.program_end
    process = subprocess.Popen(
        [*CLI, *arguments],
        env=box.environment({**LIVE, **(env or {})}),
        cwd=box.cwd,
        stdin=end,
        stdout=end if stdout is None else stdout,
        stderr=end if stderr is None else stderr,
        preexec_fn=None if job else take,
        process_group=0 if job else None,
    )
    program = Program(process, box)
    program.read()
    box.programs.append(program)
    return program


def stopped(pid: int) -> bool:
    """Whether a process is stopped, as after Ctrl-Z."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
