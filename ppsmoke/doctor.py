"""`pp-smoke-run doctor`: what of this machine works, what does not, what to do about it.

Every check has a deadline and runs in a daemon thread; the compiler and the device are tried in a process of their own.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import typer

from ppsmoke import doctor_checks as checks
from ppsmoke.doctor_checks import Finding, Status, in_words
from ppsmoke.doctor_probe import PROBE_S, ProbeProcess, compiler_finding, device_finding
from ppsmoke.errors import EnvironmentFault, PpError
from ppsmoke.signals import signals_held
from ppsmoke.terminal import Terminal

_NAME_WIDTH = len("libraries")
_COLORS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}
_QUICK_S = 20.0
_IMPORT_S = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    deadline_s: float
    look: Callable[[], Finding]


def doctor_command(*, as_json: bool, device: str = "") -> int:
    """Run every check and print it; 0 when the local form can work, 3 when something that it needs fails."""
    terminal = Terminal(quiet=as_json)
    results: list[tuple[str, Finding]] = []
    try:
        with ProbeProcess(device) as probe:
            for check in _checks(probe):
                terminal.waiting(f"checking {check.name}")
                finding = run_check(check)
                terminal.settle()
                results.append((check.name, finding))
                if not as_json:
                    _print(check.name, finding)
    except BrokenPipeError:  # the reader has seen enough
        return 0
    finally:
        terminal.settle()
    failed = [name for name, finding in results if finding.status is Status.FAIL]
    if as_json:
        print(json.dumps([_as_json(name, finding) for name, finding in results], indent=2), flush=True)
    terminal.line(f"--seed cannot work here yet: {', '.join(failed)}" if failed else "--seed can work here")
    return EnvironmentFault.exit_status if failed else 0


def run_check(check: Check) -> Finding:
    """The check's finding; one that raises or takes longer than its deadline has failed."""
    answer: queue.SimpleQueue[Finding] = queue.SimpleQueue()
    # A thread that hangs (in a dead network disk, say) cannot be ended, only left behind.
    with signals_held():  # what is raised in the start of a thread breaks the thread
        threading.Thread(target=lambda: answer.put(_look(check)), name=check.name, daemon=True).start()
    try:
        return answer.get(timeout=check.deadline_s)
    except queue.Empty:
        return Finding(Status.FAIL, f"no answer within {check.deadline_s:g} s")


def _look(check: Check) -> Finding:
    try:
        return check.look()
    except PpError as error:
        return Finding(Status.FAIL, error.what, error.remedy)
    except BaseException as error:  # also what a native library raises when it panics
        return Finding(Status.FAIL, in_words(error))


def _checks(probe: ProbeProcess) -> Iterator[Check]:
    yield Check("version", _QUICK_S, checks.check_version)
    yield Check("platform", _QUICK_S, checks.check_platform)
    yield Check("iroh", _IMPORT_S, checks.check_iroh)
    yield Check("tinygrad", _QUICK_S, lambda: checks.check_pinned("tinygrad"))
    yield Check("libraries", _IMPORT_S, checks.check_libraries)
    yield Check("compiler", PROBE_S + _QUICK_S, lambda: compiler_finding(probe.report()))
    yield Check("device", PROBE_S + _QUICK_S, lambda: device_finding(probe.report()))
    yield Check("ports", _IMPORT_S, checks.check_ports)
    yield Check("relay", _QUICK_S, lambda: checks.relay_finding(os.environ))
    yield Check("cache", _QUICK_S, checks.check_cache)
    yield Check("model", _IMPORT_S, checks.check_model)
    yield Check("memory", _IMPORT_S, checks.check_memory)
    yield Check("logs", _QUICK_S, checks.check_logs)
    yield Check("options", _QUICK_S, lambda: checks.options_finding(os.environ))
    yield Check("vast.ai", _QUICK_S, lambda: checks.vast_key_finding(os.environ))


def describe(name: str, finding: Finding, width: int | None) -> list[str]:
    """One line, or with a width (of a terminal) as many as it takes, wrapped under the third column."""
    head = f"{finding.status.value:<4}  {name:<{_NAME_WIDTH}}  "
    texts = [finding.found, f"fix: {finding.remedy}"] if finding.remedy else [finding.found]
    if width is None:
        return [head + "  ".join(texts)]
    room = max(20, width - len(head))
    lines = [
        line for text in texts for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    ]
    return [(" " * len(head) if number else head) + line for number, line in enumerate(lines)]


def _print(name: str, finding: Finding) -> None:
    if not sys.stdout.isatty():
        print(*describe(name, finding, None), flush=True)
        return
    first, *others = describe(name, finding, shutil.get_terminal_size().columns)
    color = _COLORS.get(finding.status)
    if color and not os.environ.get("NO_COLOR"):
        first = typer.style(first[:4], fg=color) + first[4:]
    print(first, *others, sep="\n", flush=True)


def _as_json(name: str, finding: Finding) -> dict[str, str | None]:
    return {"check": name, "status": finding.status.value, "found": finding.found, "remedy": finding.remedy}
