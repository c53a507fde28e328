"""The Python form of `pp-smoke-run --seed`: the same run, its text as a value, its failures as exceptions.

Nothing is printed, and no option is read from the environment or a config file. In the main thread Ctrl-C and SIGTERM
end the run in order while it goes on; in another thread no signal is touched.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ppsmoke import models
from ppsmoke.api_arguments import check_arguments
from ppsmoke.bundle.recorder import RecordedLog, RunRecorder
from ppsmoke.command_steps import RunCommand, begin_records, empty_result, prepare
from ppsmoke.errors import Interrupted, PpError, UsageError, VerifyMismatch
from ppsmoke.messages import Feedback
from ppsmoke.orchestrator.options import Deadlines, OutputGone, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.preflight import check_announced_model, check_machine
from ppsmoke.request import Model, open_model
from ppsmoke.run_events import NoteMade, RunEvent, Seen
from ppsmoke.signal_loop import run_with_signals
from ppsmoke.signals import ENDING_SIGNALS
from ppsmoke.stub_model import is_stub_model
from ppsmoke.telemetry import export_run
from ppsmoke.terminal import Terminal
from ppsmoke.verify import verify_tokens

log = logging.getLogger(__name__)

_processes: list[int] = []
"""The one in which the network library was first used, once it was."""


def run_local(
    *,
    num_stages: int = 2,
    model: str = models.DEFAULT_MODEL,
    prompt: str = "Say hello",
    system: str | None = None,
    raw: bool = False,
    max_tokens: int = 64,
    context: int = 2048,
    temperature: float = 0.0,
    top_p: float = 1.0,
    sample_seed: int = 0,
    feedback: Literal["direct", "orchestrator"] = "direct",
    device: str = "",
    verify: bool = False,
    deadlines: Deadlines | None = None,
    log_dir: Path | str | None = None,
    on_text: Callable[[str], object] | None = None,
    on_event: Callable[[RunEvent], object] | None = None,
) -> RunResult:
    """Run a chain of `num_stages` processes on this machine, serve one prompt, and return when nothing of it is left.

    model: a name, the path of a GGUF file or of a split one's first part, an https URL; fetched if it is not cached.
    system, raw: a system prompt for the chat template; or no chat template at all.
    max_tokens, context: most new tokens; positions of the KV cache.
    temperature, top_p, sample_seed: sampling; a temperature of 0 is greedy. Any `num_stages` gives the same text.
    feedback: who feeds each token back, the last stage itself or the orchestrator.
    device: tinygrad device of every stage; "" is the first that works.
    verify: decode again in one process and compare; other tokens raise VerifyMismatch.
    deadlines: in seconds; its `budget` bounds the whole run.
    log_dir: an empty or new directory for all that is known of the run; by default one of the user's state folder.
    on_text: called in this thread with each piece of text as it comes. What it raises ends the run and is raised here.
    on_event: likewise with everything that happens, as `ppsmoke.run_events` has it.

    The result has `text`, `tokens`, `finish_reason`, `times` and more; `as_json()` is what `--json` prints.

    Raises PpError: UsageError for arguments that cannot be served, EnvironmentFault for a machine that cannot do it,
    RunFailed for a run that began and failed. Ctrl-C raises KeyboardInterrupt, SIGTERM and SIGHUP raise Interrupted.
    Call it outside an event loop, or as `await asyncio.to_thread(run_local, ...)`.
    """
    check_arguments(locals())
    _refuse_inside_a_loop()
    _refuse_after_a_fork()
    command = RunCommand(
        num_stages=num_stages,
        prompt=prompt,
        system=system,
        raw=raw,
        model=model,
        max_tokens=max_tokens,
        context=context,
        feedback=Feedback(feedback),
        device=device,
        temperature=temperature,
        top_p=top_p,
        sample_seed=sample_seed,
        plan=False,
        verify=verify,
        as_json=False,
        members=False,
        quiet=True,
        debug=False,
        log_dir=Path(log_dir) if log_dir is not None else None,
        deadlines=deadlines or Deadlines(),
    )
    try:
        with _signals_restored():
            return _run(command, on_text, on_event)
    finally:
        # The network library closes its sockets when the last object of a run's is freed, and they refer to each other.
        gc.collect()


def _run(
    command: RunCommand, on_text: Callable[[str], object] | None, on_event: Callable[[RunEvent], object] | None
) -> RunResult:
    silent = Terminal(quiet=True)
    run_id = secrets.token_hex(16)
    began = time.monotonic()
    options = prepare(command, silent, run_id, lambda: _open(command))
    prepared = time.monotonic() - began
    check_machine(options, loopback=True)
    _processes.append(os.getpid())
    options, recorder = begin_records(command, options, log.warning)
    records = RecordedLog(recorder)
    logging.getLogger().addHandler(records)
    view = _Listener(recorder, on_text, on_event)
    result = empty_result(command, run_id)
    try:
        run = LocalRun(options, view)
        view.end = run.output_gone
        result = run_with_signals(run.execute())
        result.times.model = prepared
        if command.verify and result.error is None and result.finish_reason is not None:
            _verify(options, result, silent)
    except PpError as error:
        result.error = error
    finally:
        logging.getLogger().removeHandler(records)
        recorder.finish(result.as_json())
    export_run(recorder.directory, os.environ, log.warning)
    if view.failure is not None:
        raise view.failure
    if isinstance(result.error, Interrupted) and result.error.exit_status == 128 + signal.SIGINT:
        raise KeyboardInterrupt from result.error
    if result.error is not None:
        raise result.error
    return result


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "run_local was called inside an event loop, which it would hold up",
        remedy="Call it as await asyncio.to_thread(run_local, ...).",
    )


def _refuse_after_a_fork() -> None:
    """The network library's threads do not come along into a forked process, where it would wait for them."""
    if _processes and _processes[0] != os.getpid():
        raise UsageError(
            "run_local was called in a process forked from one that had used it",
            remedy='Start such processes afresh, as with multiprocessing.get_context("spawn").',
        )


def _open(command: RunCommand) -> Model:
    if is_stub_model(command.model):
        return open_model(command.model, None)
    ref = models.parse_model(command.model)
    path = models.find_model(ref) or models.ensure_model(
        ref, progress=models.SilentProgress(), judge=check_announced_model(command.num_stages, command.context)
    )
    return open_model(ref.id, path)


def _verify(options: RunOptions, result: RunResult, silent: Terminal) -> None:
    verification = verify_tokens(options, result.tokens, silent)
    if not verification.equal:
        result.error = VerifyMismatch(
            verification.describe(), remedy=f"Keep {options.log_dir} and report it: no N may change the text."
        )


@contextmanager
def _signals_restored() -> Iterator[None]:
    """Whatever the run does with signals, the caller finds its own handlers again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (*ENDING_SIGNALS, signal.SIGTSTP, signal.SIGTTIN)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that was not installed from Python cannot be put back
                signal.signal(number, handler)


class _Listener:
    """See View. What a callback raises is kept in `failure`; `end` then ends the run, or OutputGone does."""

    def __init__(
        self,
        recorder: RunRecorder,
        on_text: Callable[[str], object] | None,
        on_event: Callable[[RunEvent], object] | None,
    ) -> None:
        self._recorder = recorder
        self._on_text = on_text
        self._on_event = on_event
        self.failure: BaseException | None = None
        self.end: Callable[[], None] = lambda: None

    def line(self, text: str) -> None:
        self.happened(NoteMade(text))

    def detail(self, text: str) -> None:
        self.happened(NoteMade(text, "detail"))

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None:
        if self._on_text is not None and self.failure is None:
            try:
                self._on_text(piece)
            except BaseException as error:  # KeyboardInterrupt too: passing through the loop it would leave threads
                self.failure = error
        if self.failure is not None:
            raise OutputGone

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        self._recorder.happened(event, seen)
        if self._on_event is not None and self.failure is None:
            try:
                self._on_event(event)
            except BaseException as error:
                self.failure = error
                self.end()
