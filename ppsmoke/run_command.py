"""What `pp-smoke-run --seed` does, in order: model, prompt, plan, checks, run, verification, report."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

from ppsmoke import models
from ppsmoke.bundle.recorder import RunRecorder
from ppsmoke.command_steps import RunCommand, begin, empty_result, end, prepare, report
from ppsmoke.dialog import TypedDialog
from ppsmoke.errors import Interrupted, PpError, VerifyMismatch
from ppsmoke.interruptible import run_interruptibly
from ppsmoke.models import find_model, parse_model
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.output import RunOutput
from ppsmoke.preflight import (
    available_memory,
    check_announced_model,
    check_machine,
    describe_plan,
    plan_json,
)
from ppsmoke.request import Model, open_model
from ppsmoke.signal_loop import run_with_signals
from ppsmoke.stub_model import is_stub_model
from ppsmoke.terminal import Terminal
from ppsmoke.verify import Verification, verify_tokens
from ppsmoke.worker_variables import worker_variables


def run_command(command: RunCommand) -> int:
    """The exit status. With --json every end, good or bad, prints one object on stdout."""
    terminal = Terminal(quiet=command.quiet, debug=command.debug)
    run_id = secrets.token_hex(16)
    result = empty_result(command, run_id)
    more: dict[str, Any] = {}
    recorder: RunRecorder | None = None
    began = time.monotonic()
    try:
        worker_variables(os.environ)
        options = prepare(command, terminal, run_id, lambda: _open(command, terminal))
        prepared = time.monotonic() - began
        if command.plan:
            lines = describe_plan(options, free=available_memory())
            print(json.dumps(plan_json(options)) if command.as_json else "\n".join(lines), flush=True)
            return 0
        check_machine(options, loopback=not command.relay_urls)
        if command.relay_urls:
            options = _with_relays(command, options, terminal)
        options, recorder = begin(command, options, terminal)
        result = _serve(command, options, terminal, recorder)
        result.times.model = prepared
        # A run that was cut short, its reader gone, has nothing whole to compare.
        if command.verify and result.error is None and result.finish_reason is not None:
            more["verify"] = _verify(options, result, terminal).as_json()
    except PpError as error:
        result.error = error
    return report(command, result, terminal, more, recorder)


def _open(command: RunCommand, terminal: Terminal) -> Model:
    if is_stub_model(command.model):
        return open_model(command.model, None)
    ref = parse_model(command.model)
    path = find_model(ref)
    if path is None:
        terminal.line(f"fetching {ref.id}")
        with nullcontext(models.SilentProgress()) if command.quiet else models.show_progress() as progress:
            path = models.ensure_model(
                ref, progress=progress, judge=check_announced_model(command.num_stages, command.context)
            )
    return open_model(ref.id, path)


def _with_relays(command: RunCommand, options: RunOptions, terminal: Terminal) -> RunOptions:
    """The nodes are to meet through relays, as far ones would. Raises UsageError, RelayUnusable."""
    relays = import_module("ppsmoke.relays")  # what most local runs do without
    given = tuple(dict.fromkeys(relays.check_relay_url(url) for url in command.relay_urls))
    token = relays.check_relay_token(command.relay_token)
    choosing = import_module("ppsmoke.relays.preflight").choose_relays(
        given,
        token,
        options,
        terminal,
        otherwise="nothing was started",
        without="the stages of this machine reach each other directly",
    )
    return replace(options, relay_urls=run_interruptibly(choosing), relay_token=token)


def _serve(command: RunCommand, options: RunOptions, terminal: Terminal, recorder: RunRecorder) -> RunResult:
    output = RunOutput(terminal, stream=not command.as_json, recorder=recorder)
    dialog = TypedDialog(command, options.model, output) if command.hold else None
    run = LocalRun(options, output, hold=dialog)
    try:
        run_with_signals(run.execute())
        end(run.result, output, terminal)
    except Interrupted as late:  # when all but the last lines was over
        run.result.error = run.result.error or late
    return run.result


def _verify(options: RunOptions, result: RunResult, terminal: Terminal) -> Verification:
    """Raises PpError; the run itself keeps its result."""
    verification = verify_tokens(options, result.tokens, terminal)
    terminal.line(verification.describe())
    if not verification.equal:
        result.error = VerifyMismatch(
            verification.describe(), remedy=f"Keep {options.log_dir} and report it: no N may change the text."
        )
    return verification
