"""What `pp-smoke-run --redeploy` does: find the held run, pack the code that runs here, send it, follow it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.errors import PpError, RunFailed, UsageError, error_class
from ppsmoke.files.wheel import build_wheel
from ppsmoke.held_runs import (
    AnswerLine,
    Correspondence,
    HeldRun,
    forget,
    held_dir,
    new_request,
    read_held,
    refusal,
)
from ppsmoke.orchestrator.result import error_json
from ppsmoke.process_mark import Life, life
from ppsmoke.run_ids import is_run_id, only_run
from ppsmoke.terminal import Terminal
from ppsmoke.transport.hello import PROTOCOL_VERSION
from ppsmoke.vast.lease_labels import in_scope, run_label

_POLL_S = 0.2
_GIT_S = 5.0


def redeploy_command(*, label: str | None, as_json: bool, quiet: bool, debug: bool) -> int:
    """The exit status: 0 when the new code is in use. News go to stderr; with --json one object to stdout."""
    terminal = Terminal(quiet=quiet, debug=debug)
    error: PpError | None = None
    told: dict[str, Any] = {}
    try:
        told = _redeploy(label, terminal)
    except PpError as failure:
        error = failure
        terminal.settle()
        terminal.error(failure)
    status = 0 if error is None else error.exit_status
    if as_json:
        body = {"exit_status": status, "error": None if error is None else error_json(error), **told}
        print(json.dumps(body), flush=True)
    return status


def choose(runs: Iterable[HeldRun], label: str | None) -> HeldRun:
    """The one run that is meant. Raises UsageError. Pure."""
    labels = {run_label(run.run_id): run for run in runs}
    meant = [run for name, run in labels.items() if label is None or in_scope(label, name)]
    if label is not None and is_run_id(label):
        one = only_run(label, (run.run_id for run in labels.values()))
        meant = [run for run in labels.values() if run.run_id == one]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        asked = "no run is held" if label is None else f"no run {label} is held"
        others = f" Held are {', '.join(labels)}." if labels else ""
        raise UsageError(
            f"{asked} by this user on this machine",
            remedy=f"Begin one with --hold; it can be found once it answered.{others}",
        )
    raise UsageError(f"{len(meant)} runs are held here: {', '.join(labels)}", remedy="Say which with --label.")


def _redeploy(label: str | None, terminal: Terminal) -> dict[str, Any]:
    folder = held_dir(os.environ)
    run = choose(_alive(folder), label)
    with tempfile.TemporaryDirectory(prefix="pp-smoke-run-") as made:
        wheel = build_wheel(Path(made))
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        request = new_request(
            run,
            sha256=sha256,
            version=__version__,
            protocol=PROTOCOL_VERSION,
            source=f"{_commit()}code {sha256[:8]}",
        )
        reason = refusal(request, version=run.version, protocol=run.protocol)
        if reason is not None:
            raise RunFailed(reason, phase="redeploy", remedy="Begin a new run with it.")
        name = run_label(run.run_id)
        terminal.line(f"sending {request.source} to {name}: {run.model_id}, {run.num_stages} stages")
        correspondence = Correspondence.begin(folder, request, wheel)
    try:
        last = _follow(correspondence, run, terminal)
    finally:
        correspondence.close()
    if last.error is not None:
        raise _error(last)
    terminal.line(last.text)
    return {"label": name, "version": request.version, "sha256": sha256, **(last.result or {})}


def _follow(correspondence: Correspondence, run: HeldRun, terminal: Terminal) -> AnswerLine:
    """Until the last answer, however long the chain's answer under way takes: the run has deadlines of its own.

    Raises RunFailed when its process is gone.
    """
    while True:
        gone = life(run.process) is Life.DEAD
        for line in correspondence.lines():
            if line.done:
                terminal.settle()
                return line
            terminal.settle()
            terminal.line(line.text)
        if gone:
            raise RunFailed(
                "the held run's process has ended", phase="redeploy", remedy="See its terminal and its logs."
            )
        terminal.waiting("waiting for the held run")
        time.sleep(_POLL_S)


def _alive(folder: Path) -> list[HeldRun]:
    """What killed runs left is removed."""
    alive = []
    for run in read_held(folder):
        if life(run.process) is Life.DEAD:
            forget(folder, run)
        else:
            alive.append(run)
    return alive


def _error(line: AnswerLine) -> PpError:
    told = line.error or {}
    kind = error_class(str(told.get("code"))) or RunFailed
    return kind(
        line.text,
        stage=told.get("stage"),
        phase=told.get("phase"),
        remedy=told.get("remedy"),
        log_tail=tuple(map(str, told.get("log_tail") or ())),
    )


def _commit() -> str:
    """'commit 1a2b3c4d and changes, ' of the checkout that this code is run from; empty where it is none."""
    folder = Path(__file__).parent
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty= and changes", "--abbrev=8", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
        return f"commit {said.stdout.strip()}, "
    return ""
