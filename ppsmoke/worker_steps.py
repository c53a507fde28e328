"""Steps of a worker, asked for by a plain thread over the step socket: one write, one read, no event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, NamedTuple

from ppsmoke.errors import DeadlineExceeded, PpError, RequestRejected, WorkerFailed
from ppsmoke.objects import FLAGS_AT, PREFILL, describe_step
from ppsmoke.step_frames import ERROR, Reply, decode_error
from ppsmoke.step_socket import StepSocket
from ppsmoke.worker_pipe import error_from

_EXPLAIN_S = 8.0


@dataclass(frozen=True, slots=True)
class WorkerDeadlines:
    """Seconds. `load_s` bounds configure, `prefill_s` a prefill step, `step_s` every other op; waiting for ready and
    stop have their own."""

    load_s: float = 600.0
    prefill_s: float = 480.0
    step_s: float = 60.0


class StepStamps(NamedTuple):
    """When, on this machine's monotonic clock, a step went to the worker, its engine began and was done, and the
    reply was here; seconds."""

    sent: float
    began: float
    done: float
    back: float


class StepsAbandoned(Exception):
    """`abandon` was called while a step was computed, or before."""


class StepChannel:
    """The step ops of one worker, one at a time; for threads. `ask` and `answer` make one step.

    They raise WorkerDied, DeadlineExceeded, or what the worker answered: the RequestRejected or EnvironmentFault class
    of its code, else WorkerFailed; all name the stage and the phase. `abandon` makes the step in progress and every
    later one raise StepsAbandoned at once.

    `stamps` are those of the newest step.
    gone: asked in `loop` why the socket ended; log_tail: the worker's last log lines; forget: makes the worker forget a
    request or all, in `loop`.
    """

    def __init__(
        self,
        sock: socket.socket,
        stage: int,
        deadlines: WorkerDeadlines,
        loop: asyncio.AbstractEventLoop,
        *,
        gone: Callable[[], Coroutine[Any, Any, PpError]],
        log_tail: Callable[[], Sequence[str]],
        forget: Callable[[str | None], Coroutine[Any, Any, None]],
    ) -> None:
        self.stamps = StepStamps(0.0, 0.0, 0.0, 0.0)
        self._socket = StepSocket(sock)
        self._stage = stage
        self._deadlines = deadlines
        self._loop = loop
        self._gone = gone
        self._log_tail = log_tail
        self._forget = forget
        self._turn = threading.Lock()
        self._asker = 0
        self._record: bytes | None = None
        self._sent = 0.0
        self._abandoned = False

    def ask(self, prefix: bytes, record: bytes) -> None:
        """Hand over the step of a whole object record, as step_frames has it. The thread that does so must hear the
        `answer`, or `leave`. Waits while another thread's step is computed."""
        self._turn.acquire()
        self._asker = threading.get_ident()
        self._record = record
        if self._abandoned:
            self._end_turn()
            raise StepsAbandoned
        try:
            is_prefill = record[FLAGS_AT] & PREFILL
            self._socket.deadline(self._deadlines.prefill_s if is_prefill else self._deadlines.step_s)
            self._sent = time.monotonic()
            self._socket.send(prefix, record)
        except OSError as error:
            raise self._failed(error) from None

    def answer(self) -> Reply:
        """Wait for the outcome of the step that was asked for: rows or a token."""
        try:
            reply = self._socket.receive_reply()
            back = time.monotonic()
        except (OSError, RequestRejected) as error:
            raise self._failed(error) from None
        if reply is None:
            raise self._failed(EOFError())
        self.stamps = StepStamps(self._sent, reply.began, reply.done, back)
        if reply.kind == ERROR:
            phase = self.doing
            self._end_turn()
            raise error_from(decode_error(reply.payload), stage=self._stage, phase=phase, log_tail=self._log_tail())
        self._end_turn()
        return reply

    @property
    def doing(self) -> str | None:
        """The phase of the step in progress."""
        return None if self._record is None else describe_step(self._record)

    def leave(self) -> None:
        """The calling thread asks no more; if it is owed an answer, nobody will hear one any more."""
        if self._asker == threading.get_ident():
            self.abandon()
            self._end_turn()

    def reset(self, request_id: str | None = None) -> None:
        """Makes the worker forget one request, or all."""
        asyncio.run_coroutine_threadsafe(self._forget(request_id), self._loop).result()

    def abandon(self) -> None:
        """From any thread: nothing more is wanted of the worker, which may be in the middle of a step."""
        self._abandoned = True
        self._socket.shut()

    def close(self) -> None:
        """Give the socket back; the thread that used it has ended or will meet StepsAbandoned."""
        self.abandon()
        self._socket.close()

    def _end_turn(self) -> None:
        """Let the next thread ask."""
        self._record = None
        self._asker = 0
        self._turn.release()

    def _failed(self, error: Exception) -> Exception:
        """What to raise where the socket failed in a step."""
        late = isinstance(error, TimeoutError)
        if late:
            self._socket.shut()  # a late answer must not be taken for the next step's
        phase = self.doing or ""
        try:
            if self._abandoned:
                return StepsAbandoned()
            if late:
                prefill = phase.startswith("prefill")
                deadline_s = self._deadlines.prefill_s if prefill else self._deadlines.step_s
                return DeadlineExceeded(
                    f"stage {self._stage}'s worker did not finish {phase} within {deadline_s:g} s",
                    stage=self._stage,
                    phase=phase,
                    log_tail=self._log_tail(),
                )
            if isinstance(error, RequestRejected):
                return self._unusable(f"answered nonsense: {error}", phase)
            return self._death(phase)
        finally:
            self._end_turn()

    def _death(self, phase: str) -> PpError:
        asked = asyncio.run_coroutine_threadsafe(self._gone(), self._loop)
        try:
            error = asked.result(_EXPLAIN_S)
        except (TimeoutError, CancelledError):
            error = self._unusable("ended its step socket", phase)
        error.phase = error.phase or phase
        return error

    def _unusable(self, what: str, phase: str) -> WorkerFailed:
        return WorkerFailed(
            f"stage {self._stage}'s worker {what}", stage=self._stage, phase=phase, log_tail=self._log_tail()
        )
