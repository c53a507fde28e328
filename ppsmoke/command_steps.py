"""What a run does in the same way wherever its stages are: from options to a request, from a result to its report."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ppsmoke.bundle.folder import check_chosen, open_folder
from ppsmoke.bundle.recorder import RecordedLog, RunRecorder
from ppsmoke.bundle.writer import BundleWriter
from ppsmoke.errors import PpError, UsageError
from ppsmoke.held_runs import forget_dead, held_dir
from ppsmoke.messages import Feedback, Generation
from ppsmoke.orchestrator.hold import Prompt
from ppsmoke.orchestrator.options import Deadlines, OutputGone, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.output import RunOutput
from ppsmoke.plan import check_stage_count
from ppsmoke.preflight import plan_json
from ppsmoke.redaction import secret_values
from ppsmoke.request import Model, fit_to_context
from ppsmoke.signals import exit_on_signals, ignore_signals
from ppsmoke.telemetry import export_run
from ppsmoke.terminal import Terminal, TerminalLog
from ppsmoke.wording import counted, short_path, shown_model


@dataclass(frozen=True, slots=True)
class RunCommand:
    """The options of the command line, as given.

    prompt_given: False where --hold is to wait for its first prompt too; `prompt` stands for it until then.
    """

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
    hold: bool = False
    prompt_given: bool = True
    relay_urls: tuple[str, ...] = ()
    relay_token: str = field(default="", repr=False)


def empty_result(command: RunCommand, run_id: str) -> RunResult:
    """Of a run that has not begun."""
    return RunResult(run_id=run_id, model_id=command.model, num_stages=command.num_stages, prompt_tokens=0)


def prepare(command: RunCommand, terminal: Terminal, run_id: str, open_: Callable[[], Model]) -> RunOptions:
    """Everything that can be refused by looking at the request and the model alone. Raises PpError.

    The log directory is chosen later: see `begin`.
    """
    if command.num_stages < 2:
        check_stage_count(command.num_stages, 2)
    _refuse_empty(command.prompt)
    for name, text in (("--prompt", command.prompt), ("--system", command.system or "")):
        if not _is_text(text):
            raise UsageError(f"{name} is not UTF-8 text", remedy="Convert it first, as with iconv -t UTF-8.")
    if command.log_dir is not None and not command.plan:
        check_chosen(command.log_dir)
    model = open_()
    check_stage_count(command.num_stages, model.num_layers)
    prompt = read_prompt(command, model, command.prompt)
    if prompt.max_tokens < command.max_tokens and command.prompt_given:
        fit = f"{counted(prompt.max_tokens, 'token')} {'fits' if prompt.max_tokens == 1 else 'fit'}"
        terminal.line(f"note: only {fit} behind the prompt's {len(prompt.tokens)} in a context of {command.context}")
    return RunOptions(
        run_id=run_id,
        model=model,
        num_stages=command.num_stages,
        prompt_tokens=prompt.tokens,
        generation=Generation(
            # More may fit behind a further prompt than behind this one.
            max_tokens=command.max_tokens if command.hold else prompt.max_tokens,
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
        held_dir=held_dir(os.environ) if command.hold else None,
        prompt_given=command.prompt_given,
    )


def read_prompt(command: RunCommand, model: Model, text: str) -> Prompt:
    """Raises UsageError for a prompt that is empty or too long, ChatTemplateFailed."""
    _refuse_empty(text, "Type some text; Ctrl-D ends the run." if command.hold else "Give some text with --prompt.")
    tokens = model.encode_prompt(text, raw=command.raw, system=command.system, now=datetime.now().astimezone())
    return Prompt(tuple(tokens), fit_to_context(len(tokens), command.max_tokens, command.context))


def _refuse_empty(prompt: str, remedy: str = "Give some text with --prompt.") -> None:
    if not prompt:
        raise UsageError("the prompt is empty", remedy=remedy)


def begin(command: RunCommand, options: RunOptions, terminal: Terminal) -> tuple[RunOptions, RunRecorder]:
    """As `begin_records`, and say what is run."""
    options, recorder = begin_records(command, options, terminal.line)
    logging.getLogger().addHandler(TerminalLog(terminal))
    logging.getLogger().addHandler(RecordedLog(recorder))
    model = shown_model(options.model.model_id)
    prompt = counted(len(options.prompt_tokens), "prompt token")
    asked = prompt if options.prompt_given else "prompts from standard input"
    terminal.line(f"run {options.run_id[:8]}  {model}  {options.num_stages} stages  {asked}")
    terminal.line(f"run directory {short_path(options.log_dir)}")
    return options, recorder


def begin_records(
    command: RunCommand, options: RunOptions, warn: Callable[[str], None]
) -> tuple[RunOptions, RunRecorder]:
    """Make the run's directory and begin its records. Raises UsageError, EnvironmentFault."""
    options.redactor.keep(*secret_values(os.environ), command.relay_token)
    folder = open_folder(options.run_id, command.log_dir, os.environ)
    if folder.otherwise:
        warn(f"warning: {folder.otherwise}; the run directory is among the temporary files")
    recorder = RunRecorder(folder, BundleWriter(folder.path, options.redactor, warn=warn))
    recorder.begin(options.run_id, plan_json(options))
    forget_dead(held_dir(os.environ))
    return replace(options, log_dir=folder.path), recorder


def end(result: RunResult, output: RunOutput, terminal: Terminal) -> None:
    """Wait until the reader has the text; a failure of that is the result's. Then the summary."""
    if result.error is None or output.has_lines:
        try:
            output.drain()
        except OutputGone:
            pass
        except PpError as error:
            result.error = result.error or error
    output.end()
    if result.error is None:
        terminal.line(summary(result))


def report(
    command: RunCommand,
    result: RunResult,
    terminal: Terminal,
    more: Mapping[str, Any],
    recorder: RunRecorder | None = None,
) -> int:
    """Errors on stderr, the JSON object (with `more` in it) on stdout and into the run's directory, where there is one;
    the exit status."""
    if result.left_behind is None:
        exit_on_signals()
    else:
        ignore_signals()  # a user who is out of patience must read it all the same
    body = {**result.as_json(), **more}
    if recorder is not None:
        recorder.finish(body)
    if result.error is not None:
        terminal.error(result.error)
    if result.left_behind is not None and result.left_behind is not result.error:
        terminal.error(result.left_behind)
    if recorder is not None and result.exit_status != 0:
        terminal.run_directory(recorder.directory)
    if result.left_behind is not None:
        exit_on_signals(result.exit_status)
    if command.as_json:
        with suppress(BrokenPipeError):  # whoever went away must not turn a failure into a success
            print(json.dumps(body), flush=True)
    if recorder is not None:
        export_run(recorder.directory, os.environ, terminal.line)
    return result.exit_status


def summary(result: RunResult) -> str:
    """One line on a run that is done."""
    times = result.times
    if result.answers is not None:
        return f"done  {counted(result.answers, 'answer')}  total {times.total or 0:.1f} s"
    parts = [f"{counted(len(result.tokens), 'token')} ({result.finish_reason or 'output closed'})"]
    if times.first_token is not None:
        parts.append(f"first token {times.first_token:.2f} s")
    rate = times.decode_tok_s()
    if rate is not None:
        parts.append(f"{rate:.1f} tok/s")
    parts.append(f"total {times.total or 0:.1f} s")
    return "done  " + "  ".join(parts)


def _is_text(text: str) -> bool:
    """Bytes of the command line that are no UTF-8 come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
