"""A node's hold on its worker process: start it, talk to it, know at once when it dies, and end it for certain."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ppsmoke import errors
from ppsmoke.errors import DeadlineExceeded, PpError, WorkerDied, WorkerFailed
from ppsmoke.logs import without_tracebacks
from ppsmoke.signals import ending, ending_remedy
from ppsmoke.waiting import wait_for
from ppsmoke.worker_pipe import WorkerPipe, error_from
from ppsmoke.worker_protocol import Message, Op, encode_line
from ppsmoke.worker_steps import StepChannel, WorkerDeadlines

_T = TypeVar("_T")
_KILL_S = 5.0
_LAST_WORDS_S = 0.25


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """What a worker says when it is loaded; range and device are None where no model was named yet."""

    pid: int
    role: str | None
    device: str | None
    layer_start: int | None
    layer_end: int | None
    bytes_loaded: int
    load_s: float
    compile_s: float
    facts: Mapping[str, Any]


class WorkerProcess:
    """One worker. Ops may be called one after another; a cancelled op's late reply is dropped.

    `steps` computes: it belongs to the thread that calls it. Everything else belongs to the event loop.
    Every op raises WorkerDied, DeadlineExceeded, or what the worker answered: the RequestRejected or EnvironmentFault
    class of its code, else WorkerFailed. `died` resolves when the process ends without `stop` having been asked; after
    `stop` it stays pending.
    """

    def __init__(
        self,
        stage: int,
        on_log: Callable[[str], None],
        deadlines: WorkerDeadlines,
        on_progress: Callable[[Mapping[str, Any]], None] = lambda fields: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stage = stage
        self.died: asyncio.Future[WorkerDied] = loop.create_future()
        self._deadlines = deadlines
        self._pipe = WorkerPipe(stage, on_log, on_progress)
        own, self._worker_end = socket.socketpair()
        self.steps = StepChannel(
            own,
            stage,
            self._deadlines,
            loop,
            gone=self._gone,
            log_tail=lambda: self.log_tail,
            forget=self.reset,
        )
        self._stopping: asyncio.Task[int] | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._process_id = 0

    @classmethod
    async def spawn(
        cls,
        *,
        stage: int,
        num_stages: int,
        model: str,
        context: int,
        device: str | None = None,
        stub: bool = False,
        on_log: Callable[[str], None] = lambda line: None,
        on_progress: Callable[[Mapping[str, Any]], None] = lambda fields: None,
        env: Mapping[str, str] | None = None,
        deadlines: WorkerDeadlines | None = None,
    ) -> WorkerProcess:
        """Starts the process and returns at once. `env` is the whole environment it gets, ours when None; `on_progress`
        gets its progress lines, see worker_protocol.

        Raises WorkerDied when it cannot be started.
        """
        worker = cls(stage, on_log, deadlines or WorkerDeadlines(), on_progress)
        settings = {
            "STAGE": str(stage),
            "NUM_STAGES": str(num_stages),
            "PP_MODEL": model,
            "PP_CONTEXT": str(context),
            "PP_DEVICE": device or "",
            "PP_WORKER_STUB": "1" if stub else "",
            "PP_WORKER_PARENT": str(os.getpid()),
            "PP_WORKER_STEP_FD": str(worker._worker_end.fileno()),
        }
        environment = {**(os.environ if env is None else env), **settings}
        # Its own process group, so that its compilers can be killed with it; -P, so that files in the user's current
        # directory cannot shadow modules.
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: worker._pipe,
                *(sys.executable, "-P", "-m", "ppsmoke_worker"),
                env=environment,
                process_group=0,
                pass_fds=(worker._worker_end.fileno(),),
            )
        except OSError as error:
            worker.steps.close()
            what = f"stage {stage}'s worker could not be started: {error}"
            raise WorkerDied(what, stage=stage, phase="starting the worker") from error
        finally:
            worker._worker_end.close()  # so that the socket ends with the worker
        worker._transport = transport
        worker._process_id = transport.get_pid()
        worker._watcher = asyncio.create_task(worker._watch())
        return worker

    @property
    def pid(self) -> int:
        return self._process_id

    @property
    def fatal(self) -> PpError | None:
        """Why the worker itself said it could not start, if it did."""
        return self._pipe.fatal

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The worker's last log lines."""
        return tuple(without_tracebacks(self._pipe.log))

    async def wait_ready(self, deadline_s: float) -> WorkerReady:
        """The worker's ready line. A fatal line raises the class of its code."""
        ready = asyncio.shield(self._pipe.ready)
        return _ready_of(await self._within(ready, deadline_s, "starting the worker"))

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call it once the ready line is there; never where none comes."""
        self._pipe.ready.add_done_callback(
            lambda ready: callback() if not ready.cancelled() and ready.exception() is None else None
        )

    async def configure(self, *, model: str, layer_start: int, layer_end: int, context: int) -> WorkerReady:
        """Gives the worker a range and forgets all requests."""
        fields: dict[str, Any] = {
            "op": Op.CONFIGURE.value,
            "model": model,
            "layer_start": layer_start,
            "layer_end": layer_end,
        }
        fields["context"] = context
        reply = await self._ask(encode_line(fields), self._deadlines.load_s, "configuring the worker")
        return _ready_of({"pid": self.pid, **reply.fields})

    async def tokenize(self, text: str) -> list[int]:
        reply = await self._ask(encode_line({"op": "tokenize", "text": text}), self._deadlines.step_s, "tokenizing")
        return [int(token) for token in reply.fields["tokens"]]

    async def detokenize(self, tokens: Sequence[int]) -> str:
        line = encode_line({"op": "detokenize", "tokens": list(tokens)})
        return str((await self._ask(line, self._deadlines.step_s, "detokenizing")).fields["text"])

    async def reset(self, request_id: str | None = None) -> None:
        """Forgets one request, or all."""
        fields = {"op": "reset"} if request_id is None else {"op": "reset", "request_id": request_id}
        await self._ask(encode_line(fields), self._deadlines.step_s, "resetting the worker")

    async def stop(self, grace_s: float) -> int:
        """Ends the worker and its compilers: shutdown, then SIGKILL after `grace_s`.

        Returns the exit status, negative for a signal. Safe at every moment and from several tasks; the ending goes
        on when the caller is cancelled.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s))
        return await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> int:
        assert self._transport is not None
        self.steps.abandon()
        if not self._pipe.exited.done():
            self._pipe.send(encode_line({"op": Op.SHUTDOWN.value}))
            await asyncio.wait((self._pipe.exited,), timeout=max(0.0, grace_s))
        self._kill_group()
        done, _ = await asyncio.wait((self._pipe.exited,), timeout=_KILL_S)
        if self._watcher is not None:
            await asyncio.wait((self._watcher,), timeout=_KILL_S)
        self._transport.close()
        self.steps.close()
        if not done:
            raise errors.LeftBehind(
                f"stage {self.stage}'s worker (pid {self.pid}) did not end {_KILL_S:g} s after SIGKILL",
                stage=self.stage,
                phase="stopping the worker",
            )
        # The transport closes its pipes in the next turns of the loop.
        with suppress(TimeoutError):
            await wait_for(asyncio.shield(self._pipe.closed), _KILL_S)
        return self._transport.get_returncode() or 0

    def _kill_group(self) -> None:
        # Also after the worker itself has gone: a compiler may have outlived it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process_id, signal.SIGKILL)

    async def _watch(self) -> None:
        """From the end of the process to the news of it: kill what it left, take its last words, tell everybody."""
        await self._pipe.exited
        self._kill_group()
        await asyncio.wait((self._pipe.drained,), timeout=_LAST_WORDS_S)
        error = self._death()
        self._pipe.fail_all(error)
        if self._stopping is None and not self.died.done():
            self.died.set_result(error)

    async def _gone(self) -> PpError:
        """Why the step socket ended, which is a moment before the news of the worker's end."""
        assert self._watcher is not None
        await asyncio.wait((self._watcher,), timeout=_KILL_S)
        if not self._watcher.done():
            return self._protocol_error("closed its step socket and lives on")
        return self._death() if self._stopping is not None or not self.died.done() else self.died.result()

    def _death(self) -> WorkerDied:
        assert self._transport is not None
        if self._stopping is not None:
            return WorkerDied(f"stage {self.stage}'s worker was stopped", stage=self.stage)
        status = self._transport.get_returncode() or 0
        return WorkerDied(
            f"stage {self.stage}'s worker ended {ending(status)}",
            stage=self.stage,
            phase=self.steps.doing,
            log_tail=self.log_tail,
            remedy=ending_remedy(status),
        )

    async def _ask(self, data: bytes, deadline_s: float, phase: str) -> Message:
        try:
            reply = await self._within(self._pipe.ask(data), deadline_s, phase)
        except PpError as error:
            error.stage = self.stage if error.stage is None else error.stage
            error.phase = phase if error.phase is None else error.phase
            raise
        if "error" in reply.fields:
            raise self._answered_error(reply.fields["error"], phase)
        return reply

    async def _within(self, future: asyncio.Future[_T], deadline_s: float, phase: str) -> _T:
        try:
            return await wait_for(future, deadline_s)
        except TimeoutError:
            raise DeadlineExceeded(
                f"stage {self.stage}'s worker did not finish {phase} within {deadline_s:g} s",
                stage=self.stage,
                phase=phase,
                log_tail=self.log_tail,
            ) from None

    def _answered_error(self, error: Mapping[str, Any], phase: str) -> PpError:
        return error_from(error, stage=self.stage, phase=phase, log_tail=self.log_tail)

    def _protocol_error(self, what: str) -> WorkerFailed:
        return WorkerFailed(f"stage {self.stage}'s worker {what}", stage=self.stage, log_tail=self.log_tail)


def _ready_of(fields: Mapping[str, Any]) -> WorkerReady:
    layers = fields.get("layers") or (None, None)
    return WorkerReady(
        pid=int(fields["pid"]),
        role=fields.get("role"),
        device=fields.get("device"),
        layer_start=layers[0],
        layer_end=layers[1],
        bytes_loaded=int(fields.get("bytes", 0)),
        load_s=float(fields.get("load_s", 0.0)),
        compile_s=float(fields.get("compile_s", 0.0)),
        facts=fields.get("facts") or {},
    )
