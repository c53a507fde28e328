"""Steps of a worker, asked for by a plain thread over the step socket: one write, one read, no event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import DeadlineExceeded, PpError, RequestRejected, WorkerFailed
from ppsmoke.step_frames import REPLY_ERROR, Head, decode_error, decode_token, encode_request
from ppsmoke.step_socket import StepSocket
from ppsmoke.worker_pipe import error_from
from ppsmoke.worker_protocol import GREEDY, REPLY_HIDDEN, REPLY_TOKEN, Op, Sampling, Step

_EXPLAIN_S = 8.0


@dataclass(frozen=True, slots=True)
class WorkerDeadlines:
    """Seconds. `load_s` bounds configure, `prefill_s` a prefill step, `step_s` every other op; waiting for ready and
    stop have their own."""

    load_s: float = 600.0
    prefill_s: float = 480.0
    step_s: float = 60.0


@dataclass(frozen=True, slots=True)
class StepStamps:
    """When, on this machine's monotonic clock, a step went to the worker, its engine began and was done, and the
    reply was here; seconds."""

    sent: float
    began: float
    done: float
    back: float


class StepsAbandoned(Exception):
    """`abandon` was called while a step was computed, or before."""


class StepChannel:
    """The step ops of one worker, one at a time; for threads.

    Every op raises WorkerDied, DeadlineExceeded, or what the worker answered: the RequestRejected or EnvironmentFault
    class of its code, else WorkerFailed; all name the stage and the phase. `abandon` makes the step in progress and
    every later one raise StepsAbandoned at once.

    `doing` is the phase of the step in progress; `stamps` are those of the newest one.
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
        self.doing: str | None = None
        self.stamps = StepStamps(0.0, 0.0, 0.0, 0.0)
        self._socket = StepSocket(sock)
        self._stage = stage
        self._deadlines = deadlines
        self._loop = loop
        self._gone = gone
        self._log_tail = log_tail
        self._forget = forget
        self._turn = threading.Lock()
        self._abandoned = False

    def embed_and_forward(self, request_id: str, tokens: Sequence[int], position: int) -> bytes:
        """Prefill rows of these prompt tokens, `len(tokens) * hidden_dim` float32."""
        return self._hidden(Step(Op.EMBED_AND_FORWARD, request_id, position, len(tokens), True, tuple(tokens)))

    def decode_step(self, request_id: str, token: int, position: int) -> bytes:
        return self._hidden(Step(Op.DECODE_STEP, request_id, position, 1, False, (token,)))

    def forward_range(self, request_id: str, hidden: bytes, position: int, seq_len: int, is_prefill: bool) -> bytes:
        return self._hidden(Step(Op.FORWARD_RANGE, request_id, position, seq_len, is_prefill, (), hidden))

    def forward_and_sample(
        self,
        request_id: str,
        hidden: bytes,
        position: int,
        seq_len: int,
        sampling: Sampling = GREEDY,
        last: bool = True,
        is_prefill: bool = False,
    ) -> int | None:
        """The next token; None when `last` is false (more of the prompt follows)."""
        op = Op.FORWARD_AND_SAMPLE
        step = Step(op, request_id, position, seq_len, is_prefill, (), hidden, sampling, last)
        return decode_token(self._ask(step, REPLY_TOKEN))

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

    def _hidden(self, step: Step) -> bytes:
        return self._ask(step, REPLY_HIDDEN)

    def _ask(self, step: Step, wanted: int) -> bytes:
        phase = f"{'prefill' if step.is_prefill else 'decode'} at position {step.position}"
        deadline_s = self._deadlines.prefill_s if step.is_prefill else self._deadlines.step_s
        with self._turn:
            self.doing = phase
            try:
                head, payload = self._exchange(step, deadline_s, phase)
            finally:
                self.doing = None
        if head.code == REPLY_ERROR:
            raise error_from(decode_error(payload), stage=self._stage, phase=phase, log_tail=self._log_tail())
        if head.code != wanted:
            raise self._unusable(f"answered with a frame of kind {head.code:#04x}", phase)
        return payload

    def _exchange(self, step: Step, deadline_s: float, phase: str) -> tuple[Head, bytes]:
        if self._abandoned:
            raise StepsAbandoned
        try:
            self._socket.deadline(deadline_s)
            request = encode_request(step)
            sent = time.monotonic()
            self._socket.send(*request)
            frame = self._socket.receive()
            back = time.monotonic()
        except TimeoutError:
            self.abandon()  # a late answer must not be taken for the next step's
            raise DeadlineExceeded(
                f"stage {self._stage}'s worker did not finish {phase} within {deadline_s:g} s",
                stage=self._stage,
                phase=phase,
                log_tail=self._log_tail(),
            ) from None
        except RequestRejected as error:
            raise self._unusable(f"answered nonsense: {error}", phase) from None
        except OSError:
            frame = None
        if frame is None:
            if self._abandoned:
                raise StepsAbandoned
            raise self._death(phase)
        head, _, payload = frame
        self.stamps = StepStamps(sent, head.first, head.second, back)
        return head, payload

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
