"""What `pp-smoke-run --seed` does, in order: model, prompt, plan, checks, run, verification, report."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from ppsmoke import models
from ppsmoke.errors import PpError, UsageError, VerifyMismatch
from ppsmoke.logs import make_log_dir
from ppsmoke.messages import Feedback, Generation
from ppsmoke.models import find_model, parse_model
from ppsmoke.orchestrator.options import Deadlines, OutputGone, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.output import RunOutput
from ppsmoke.plan import check_stage_count
from ppsmoke.preflight import (
    available_memory,
    check_announced_model,
    check_memory,
    describe_plan,
    plan_json,
    stage_memories,
)
from ppsmoke.request import Model, fit_to_context, open_model
from ppsmoke.signals import exit_on_signals, raise_on_signals
from ppsmoke.stub_model import is_stub_model
from ppsmoke.terminal import Terminal, TerminalLog
from ppsmoke.verify import Verification, verify_tokens
from ppsmoke.wording import short_path


@dataclass(frozen=True, slots=True)
class RunCommand:
    """The options of the command line, as given."""

    num_stages: int
    prompt: str
    system: str | None
    raw: bool
    model: str
    max_tokens: int
    context: int
    feedback: Feedback
    device: str
    temperature: float
    top_p: float
    sample_seed: int
    plan: bool
    verify: bool
    as_json: bool
    members: bool
    quiet: bool
    debug: bool
    log_dir: Path | None
    deadlines: Deadlines = field(default_factory=Deadlines)


def run_command(command: RunCommand) -> int:
    """The exit status. With --json every end, good or bad, prints one object on stdout."""
    terminal = Terminal(quiet=command.quiet, debug=command.debug)
    run_id = secrets.token_hex(16)
    result = RunResult(run_id=run_id, model_id=command.model, num_stages=command.num_stages, prompt_tokens=0)
    verification: Verification | None = None
    began = time.monotonic()
    try:
        options = _prepare(command, terminal, run_id)
        prepared = time.monotonic() - began
        if command.plan:
            text = json.dumps(plan_json(options)) if command.as_json else "\n".join(describe_plan(options))
            print(text, flush=True)
            return 0
        check_memory(stage_memories(options), available_memory())
        result, verification = _serve(command, options, terminal)
        result.times.model = prepared
    except PpError as error:
        result.error = error
    exit_on_signals()
    if result.error is not None:
        terminal.error(result.error)
    if result.left_behind is not None and result.left_behind is not result.error:
        terminal.error(result.left_behind)
    if command.as_json:
        body = result.as_json()
        if verification is not None:
            body["verify"] = verification.as_json()
        with suppress(BrokenPipeError):  # whoever went away must not turn a failure into a success
            print(json.dumps(body), flush=True)
    return result.exit_status


def _prepare(command: RunCommand, terminal: Terminal, run_id: str) -> RunOptions:
    """Everything that can fail before a process is spawned."""
    if command.num_stages < 2:
        check_stage_count(command.num_stages, 2)
    if not command.prompt:
        raise UsageError("the prompt is empty", remedy="Give some text with --prompt.")
    for name, text in (("--prompt", command.prompt), ("--system", command.system or "")):
        if not _is_text(text):
            raise UsageError(f"{name} is not UTF-8 text", remedy="Convert it first, as with iconv -t UTF-8.")
    model = _open(command, terminal)
    check_stage_count(command.num_stages, model.num_layers)
    tokens = model.encode_prompt(
        command.prompt, raw=command.raw, system=command.system, now=datetime.now().astimezone()
    )
    max_tokens = fit_to_context(len(tokens), command.max_tokens, command.context)
    if max_tokens < command.max_tokens:
        terminal.line(
            f"note: only {max_tokens} tokens fit behind the prompt's {len(tokens)} in a context of {command.context}"
        )
    return RunOptions(
        run_id=run_id,
        model=model,
        num_stages=command.num_stages,
        prompt_tokens=tuple(tokens),
        generation=Generation(
            max_tokens=max_tokens,
            eos_token_ids=model.stop_token_ids,
            feedback=command.feedback,
            temperature=command.temperature,
            top_p=command.top_p,
            sample_seed=command.sample_seed,
        ),
        context=command.context,
        device=command.device,
        log_dir=Path(),
        deadlines=command.deadlines,
        show_members=command.members,
    )


def _is_text(text: str) -> bool:
    """Bytes of the command line that are no UTF-8 come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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


def _serve(command: RunCommand, options: RunOptions, terminal: Terminal) -> tuple[RunResult, Verification | None]:
    logging.getLogger().addHandler(TerminalLog(terminal))
    log_dir = make_log_dir(options.run_id, command.log_dir, os.environ)
    options = replace(options, log_dir=log_dir)
    terminal.line(
        f"run {options.run_id[:8]}  {options.model.model_id}  {options.num_stages} stages  "
        f"{len(options.prompt_tokens)} prompt tokens"
    )
    terminal.line(f"logs {short_path(log_dir)}")
    output = RunOutput(terminal, stream=not command.as_json)
    result = asyncio.run(LocalRun(options, output).execute())
    raise_on_signals()
    if result.error is None:
        try:
            output.drain()
        except OutputGone:
            pass
        except PpError as error:
            result.error = error
    output.end()
    verification = None
    if result.error is None:
        terminal.line(_summary(result))
        # A run that was cut short, its reader gone, has nothing whole to compare.
        if command.verify and result.finish_reason is not None:
            try:
                verification = verify_tokens(options, result.tokens, terminal)
            except PpError as error:
                result.error = error  # the run itself has its result
                return result, None
            terminal.line(verification.describe())
            if not verification.equal:
                result.error = VerifyMismatch(
                    verification.describe(), remedy=f"Keep {log_dir} and report it: no N may change the text."
                )
    return result, verification


def _summary(result: RunResult) -> str:
    times = result.times
    parts = [f"{len(result.tokens)} tokens ({result.finish_reason or 'output closed'})"]
    if times.first_token is not None:
        parts.append(f"first token {times.first_token:.2f} s")
    rate = times.decode_tok_s()
    if rate is not None:
        parts.append(f"{rate:.1f} tok/s")
    parts.append(f"total {times.total or 0:.1f} s")
    return "done  " + "  ".join(parts)
