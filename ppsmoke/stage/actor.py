"""The stage actor: what each role does with each message. It computes through a worker and sends to its neighbours.

role    on Inference                  on Activation                    on NextToken
First   embed_and_forward, to next    log and drop                     done: nothing; else decode_step, to next
Middle  log and drop                  forward_range, to next           log and drop
Last    log and drop                  forward_and_sample, the token    log and drop
                                      to next (First) and reply_to
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ppsmoke.errors import EdgeFaulted, PpError
from ppsmoke.messages import Feedback, Generation
from ppsmoke.objects import StreamObject, finish_reason, token_payload
from ppsmoke.roles import Role, role_of
from ppsmoke.worker_protocol import Sampling

Send = Callable[[StreamObject], None]


class WorkerPort(Protocol):
    """What the actor needs of a worker, which it waits for; hidden states are [seq_len, hidden_dim] float32 bytes."""

    def embed_and_forward(self, request_id: str, tokens: Sequence[int], position: int) -> bytes: ...

    def decode_step(self, request_id: str, token: int, position: int) -> bytes: ...

    def forward_range(self, request_id: str, hidden: bytes, position: int, seq_len: int, is_prefill: bool) -> bytes: ...

    def forward_and_sample(
        self,
        request_id: str,
        hidden: bytes,
        position: int,
        seq_len: int,
        sampling: Sampling,
        last: bool,
        is_prefill: bool,
    ) -> int | None: ...

    def reset(self, request_id: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Inference:
    """A prompt, or one part of it, as token ids."""

    obj: StreamObject


@dataclass(frozen=True, slots=True)
class Activation:
    obj: StreamObject


@dataclass(frozen=True, slots=True)
class NextToken:
    """The token that starts the next decode step, or the news that there is none."""

    obj: StreamObject


@dataclass(frozen=True, slots=True)
class Process:
    """News of the worker: it died, or failed beyond repair."""

    error: PpError


@dataclass(frozen=True, slots=True)
class SetNeighbors:
    """Where outputs go; a field left None keeps what was set. The last stage's `next` is the first (feedback)."""

    prev: Send | None = None
    next: Send | None = None
    reply_to: Send | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    request_id: str | None = None


Work = Inference | Activation | NextToken
Message = Work | Process | SetNeighbors | Reset


class StageActor:
    """One stage's computation. `log` takes a line; `on_worker_news` hears of a worker that is gone.

    `handle` raises what the worker or a neighbour raises (PpError), naming this stage.
    """

    def __init__(
        self,
        *,
        stage_index: int,
        stage_count: int,
        worker: WorkerPort,
        generation: Generation,
        log: Callable[[str], None],
        on_worker_news: Callable[[PpError], None] = lambda _error: None,
    ) -> None:
        self.role = role_of(stage_index, stage_count)
        self.dropped = 0
        self._stage_index = stage_index
        self._worker = worker
        self._generation = generation
        self._sampling = Sampling(generation.temperature, generation.top_p, generation.sample_seed)
        self._log = log
        self._on_worker_news = on_worker_news
        self._neighbors = SetNeighbors()

    def handle(self, message: Message) -> None:
        """Act on one message, in the calling thread; returns when the neighbours' edges have taken its outputs."""
        match message:
            case SetNeighbors(prev, next_, reply_to):
                now = self._neighbors
                self._neighbors = SetNeighbors(prev or now.prev, next_ or now.next, reply_to or now.reply_to)
            case Reset(request_id):
                self._worker.reset(request_id)
            case Process(error):
                self._on_worker_news(error)
            case Inference(obj) if self.role is Role.FIRST:
                hidden = self._worker.embed_and_forward(obj.request_id, obj.tokens, obj.position)
                self._pass_on(obj, hidden)
            case NextToken(obj) if self.role is Role.FIRST:
                if not obj.done:
                    hidden = self._worker.decode_step(obj.request_id, obj.tokens[0], obj.position)
                    self._pass_on(obj, hidden)
            case Activation(obj) if self.role is Role.MIDDLE:
                hidden = self._worker.forward_range(
                    obj.request_id, obj.payload, obj.position, obj.seq_len, obj.is_prefill
                )
                self._pass_on(obj, hidden)
            case Activation(obj) if self.role is Role.LAST:
                self._sample(obj)
            case _:
                self.dropped += 1
                self._log(f"dropped {type(message).__name__}: it is not for a {self.role.value} stage")

    def _pass_on(self, obj: StreamObject, hidden: bytes) -> None:
        """The activation of `obj`'s positions; request, sequence, part, position and length stay as they are."""
        self._require(self._neighbors.next, "next stage")(replace(obj, payload=hidden))

    def _sample(self, obj: StreamObject) -> None:
        wanted = self._generation
        token = self._worker.forward_and_sample(
            obj.request_id, obj.payload, obj.position, obj.seq_len, self._sampling, obj.last_part, obj.is_prefill
        )
        if token is None:
            return
        direct = wanted.feedback is Feedback.DIRECT
        out = replace(
            obj,
            position=obj.position + obj.seq_len,
            seq_len=1,
            part=0,
            is_prefill=False,
            payload=token_payload([token]),
            finish_reason=finish_reason(token, obj.sequence + 1, wanted) if direct else None,
        )
        if direct:
            self._require(self._neighbors.next, "first stage")(out)
        self._require(self._neighbors.reply_to, "orchestrator")(out)

    def _require(self, send: Send | None, who: str) -> Send:
        if send is None:
            index = self._stage_index
            raise EdgeFaulted(f"stage {index} has an output for the {who} and no edge to it", stage=index)
        return send
