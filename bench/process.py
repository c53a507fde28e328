"""Running what is measured: with a deadline, in a session of its own, leaving nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bench.samples import NotMeasured

_GRACE_S = 10.0
_TAIL_LINES = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A line of standard output and when it came, in seconds after the start."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """`first_byte_s`: when the first byte of standard output came; None without output."""

    lines: tuple[Line, ...]
    stderr: str
    wall_s: float
    first_byte_s: float | None

    @property
    def stdout(self) -> str:
        return "\n".join(line.text for line in self.lines)


def run(
    command: Sequence[str],
    *,
    deadline_s: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Finished:
    """Run to the end. `watch` gets the process id once it has started.

    Raises NotMeasured when it ends with a status other than 0, or not before the deadline.
    """
    with tempfile.TemporaryFile("w+") as said, session(command, stderr=said, env=env) as process:
        began = time.monotonic()
        if watch is not None:
            watch(process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(stdin.encode())
        process.stdin.close()
        lines, first_byte_s = _read(process, began, began + deadline_s)
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, began + deadline_s - time.monotonic()))
        wall_s = time.monotonic() - began
        ended = process.poll()
        said.seek(0)
        stderr = said.read()
    if ended is None:
        raise NotMeasured(f"it did not end within {deadline_s:g} s")
    if ended != 0:
        tail = [line for line in [*(line.text for line in lines), *stderr.splitlines()] if line.strip()][-_TAIL_LINES:]
        raise NotMeasured(f"it ended with status {ended}: {' | '.join(tail)}"[:600])
    return Finished(tuple(lines), stderr, wall_s, first_byte_s)


@contextmanager
def session(
    command: Sequence[str], *, stderr: object = subprocess.DEVNULL, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own session; at the end it is asked to go, then killed with all that it began."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,  # type: ignore[call-overload]
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise NotMeasured(f"it could not be started: {error}") from None
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _read(process: subprocess.Popen[bytes], began: float, deadline: float) -> tuple[list[Line], float | None]:
    """All lines of standard output, each with the moment its last byte came."""
    assert process.stdout is not None
    out = process.stdout.fileno()
    lines: list[Line] = []
    rest, first_byte_s = b"", None
    while (left := deadline - time.monotonic()) > 0:
        if select.select([out], [], [], left)[0]:
            data = os.read(out, 1 << 16)
            now = time.monotonic() - began
            if not data:
                break
            first_byte_s = now if first_byte_s is None else first_byte_s
            *whole, rest = (rest + data).split(b"\n")
            lines += [Line(now, text.decode(errors="replace")) for text in whole]
    if rest:
        lines.append(Line(time.monotonic() - began, rest.decode(errors="replace")))
    return lines, first_byte_s
