"""The stage actor: what each role does with each message. It computes through a worker and sends to its neighbours.

role    on Inference                  on Activation                    on NextToken
First   embed_and_forward, to next    log and drop                     done: nothing; else decode_step, to next
Middle  log and drop                  forward_range, to next           log and drop
Last    log and drop                  forward_and_sample, the token    log and drop
                                      to next (First) and reply_to
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ppsmoke.errors import EdgeFaulted, PpError
from ppsmoke.messages import Feedback, Generation
from ppsmoke.objects import StreamObject, encode_header, finish_reason, is_done_record, token_payload
from ppsmoke.roles import Role, role_of
from ppsmoke.step_frames import Reply, decode_token, request_prefix
from ppsmoke.worker_protocol import Op, Sampling


class Neighbor(Protocol):
    """Where outputs go. An output is announced while it is still computed, so that its payload finds all prepared."""

    def prepare(self, obj: StreamObject) -> None:
        """The next output is `obj`, but for its payload."""

    def send(self, payload: bytes) -> None:
        """The payload of the output that was prepared; returns when the edge has taken it."""


class WorkerPort(Protocol):
    """What the actor needs of a worker; hidden states are [seq_len, hidden_dim] float32 bytes."""

    def ask(self, prefix: bytes, record: bytes) -> None:
        """Hand over the step of an object record, which is computed from now on; `prefix` as in step_frames."""

    def answer(self) -> Reply:
        """Wait for the outcome of the step that was asked for."""
        ...

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

    prev: Neighbor | None = None
    next: Neighbor | None = None
    reply_to: Neighbor | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    request_id: str | None = None


Work = Inference | Activation | NextToken
Message = Work | Process | SetNeighbors | Reset


class StageActor:
    """One stage's computation. `log` takes a line; `on_worker_news` hears of a worker that is gone.
    `context`: positions of the KV cache; a request ends with the token that would need one more.

    `handle` raises what the worker or a neighbour raises (PpError), naming this stage.
    """

    def __init__(
        self,
        *,
        stage_index: int,
        stage_count: int,
        worker: WorkerPort,
        generation: Generation,
        context: int,
        log: Callable[[str], None],
        on_worker_news: Callable[[PpError], None] = lambda _error: None,
    ) -> None:
        self.role = role_of(stage_index, stage_count)
        self.dropped = 0
        self._stage_index = stage_index
        self._worker = worker
        self._generation = generation
        self._context = context
        sampling = Sampling(generation.temperature, generation.top_p, generation.sample_seed)
        prefixes: dict[Role, dict[type[Work], bytes]] = {
            Role.FIRST: {
                Inference: request_prefix(Op.EMBED_AND_FORWARD),
                NextToken: request_prefix(Op.DECODE_STEP),
            },
            Role.MIDDLE: {Activation: request_prefix(Op.FORWARD_RANGE)},
            Role.LAST: {Activation: request_prefix(Op.FORWARD_AND_SAMPLE, sampling)},
        }
        self._prefixes = prefixes[self.role]
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
            case _:
                obj = message.obj
                if self.begin(type(message), encode_header(obj) + obj.payload):
                    self.finish(obj)

    def begin(self, kind: type[Work], record: bytes) -> bool:
        """Ask the worker for the step of a whole object record, which would come in a message of `kind`; False when
        there is nothing to compute, else `finish` must follow."""
        prefix = self._prefixes.get(kind)
        if prefix is None:
            self.dropped += 1
            self._log(f"dropped {kind.__name__}: it is not for a {self.role.value} stage")
            return False
        if kind is NextToken and is_done_record(record):
            return False
        self._worker.ask(prefix, record)
        return True

    def finish(self, obj: StreamObject) -> None:
        """Wait for the step of `obj` that was begun and pass its outcome on."""
        if self.role is Role.LAST:
            self._pass_token_on(obj, decode_token(self._worker.answer().payload))
            return
        # Request, sequence, part, position and length stay as they are.
        following = self._require(self._neighbors.next, "next stage")
        following.prepare(obj)
        following.send(self._worker.answer().payload)

    def _pass_token_on(self, obj: StreamObject, token: int | None) -> None:
        if token is None:
            return
        wanted = self._generation
        direct = wanted.feedback is Feedback.DIRECT
        payload = token_payload([token])
        position = obj.position + obj.seq_len
        so_far = obj.sequence + 1
        most = min(wanted.max_tokens, so_far + self._context - position)
        out = replace(
            obj,
            position=position,
            seq_len=1,
            part=0,
            is_prefill=False,
            payload=payload,
            finish_reason=finish_reason(token, so_far, wanted, most=most) if direct else None,
        )
        receivers = [self._require(self._neighbors.next, "first stage")] if direct else []
        for receiver in (*receivers, self._require(self._neighbors.reply_to, "orchestrator")):
            receiver.prepare(out)
            receiver.send(payload)

    def _require(self, neighbor: Neighbor | None, who: str) -> Neighbor:
        if neighbor is None:
            index = self._stage_index
            raise EdgeFaulted(f"stage {index} has an output for the {who} and no edge to it", stage=index)
        return neighbor
