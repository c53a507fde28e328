"""Answers the node's requests, one at a time, with whatever engine is loaded."""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any

import numpy as np

from ppsmoke.errors import (
    EnvironmentFault,
    MalformedRequest,
    PlanInvalid,
    PpError,
    RequestRejected,
    WorkerFailed,
    WrongRole,
)
from ppsmoke.roles import Role, layer_range, role_of
from ppsmoke.step_frames import decode_request, error_reply, hidden_reply, token_reply
from ppsmoke.worker_protocol import (
    HIDDEN_WIDTH_BYTES,
    ROLE_OPS,
    STEP_OPS,
    Form,
    Message,
    Op,
    Step,
    StepReply,
    encode_step_reply,
    line_limit_for,
)
from ppsmoke.worker_requests import int_field, op_of, parse_step, text_field, token_list_field
from ppsmoke_worker.channel import EventWriter, RequestReader
from ppsmoke_worker.engine import Engine, EngineConfig, Progress, Rows, unheard
from ppsmoke_worker.engines import Engines
from ppsmoke_worker.requests import RequestBook

_MAX_CONTEXT = 1 << 24


class Server:
    """`stage` and `num_stages` fix the role; without them the range of `configure` does."""

    def __init__(
        self,
        reader: RequestReader,
        writer: EventWriter,
        engines: Engines,
        *,
        stage: int | None,
        num_stages: int | None,
        device: str | None,
        progress: Progress = unheard,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._engines = engines
        self._stage = stage
        self._device = device
        self._progress = progress
        self._num_stages = num_stages
        self._role = None if stage is None or num_stages is None else role_of(stage, num_stages)
        self._engine: Engine | None = None
        self._config: EngineConfig | None = None
        self._book = RequestBook(0)
        self._binary = False
        self._hidden_dim = 0

    def start(self, model: str | None, context: int) -> None:
        """Loads what the environment asked for and says ready; without a model `configure` has to name one."""
        if model is not None:
            if self._stage is None or self._num_stages is None:
                raise PlanInvalid("a model was named but no stage", remedy="set STAGE and NUM_STAGES too")
            start, end = layer_range(self._stage, self._num_stages, self._engines.count_layers(model))
            self._load(EngineConfig(model, start, end, context, self._device, self._progress))
        self._writer.line({"status": "ready", "pid": os.getpid(), "stage": self._stage, **self._state()})

    def serve(self) -> int:
        """Until the input ends or `shutdown`; returns the exit status."""
        while (item := self._reader.next()) is not None:
            if isinstance(item, RequestRejected):
                self._writer.error(item)
                continue
            if isinstance(item, tuple):
                self._answer_frame(*item)
                continue
            try:
                op = op_of(item)
                self._check(op, item)
                if op is Op.SHUTDOWN:
                    self._writer.line({"status": "stopped"})
                    break
                self._answer(op, item)
            except PpError as error:
                self._writer.error(error)
            except BrokenPipeError:
                raise
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                self._writer.error(WorkerFailed(f"{type(error).__name__} in the worker: {error}"))
        if self._engine is not None:
            self._engine.close()
        return 0

    def _answer_frame(self, head: memoryview, payload: bytes) -> None:
        """One step of the step socket, from its frame to its reply."""
        steps = self._reader.steps
        assert steps is not None
        steps.send(*self._frame_reply(head, payload))

    def _frame_reply(self, head: memoryview, payload: bytes) -> tuple[bytes, bytes | memoryview]:
        """(head, payload) of the reply, that of an error too."""
        try:
            engine = self._loaded()
            step = decode_request(head, payload, self._hidden_dim)
            self._check_role(step.op)
            began = time.monotonic()
            rows, token = self._compute(engine, step)
            done = time.monotonic()
            if step.op is Op.FORWARD_AND_SAMPLE:
                return token_reply(token, began, done)
            data = np.ascontiguousarray(rows, "<f4").data.cast("B")
            return hidden_reply(len(data), began, done), data
        except PpError as error:
            return error_reply(error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return error_reply(WorkerFailed(f"{type(error).__name__} in the worker: {error}"))

    def _check(self, op: Op, message: Message) -> None:
        if message.form is Form.BINARY and not self._binary:
            raise MalformedRequest("binary frames come after a configure with frames: binary")
        self._check_role(op)

    def _check_role(self, op: Op) -> None:
        if self._role is None:
            if op in STEP_OPS or op in (Op.TOKENIZE, Op.DETOKENIZE):
                raise WrongRole(f"{op} has to wait for configure: this worker has no stage yet")
        elif op not in ROLE_OPS[self._role]:
            raise WrongRole(f"{op} is not an op of a {self._role} stage", stage=self._stage)

    def _answer(self, op: Op, message: Message) -> None:
        if op is Op.CONFIGURE:
            self._configure(message)
        elif op is Op.RESET:
            request_id = None if message.fields.get("request_id") is None else text_field(message.fields, "request_id")
            self._book.forget(request_id)
            if self._engine is not None:
                self._engine.reset(request_id)
            self._writer.line({"status": "reset"})
        elif op is Op.TOKENIZE:
            text = text_field(message.fields, "text")
            self._writer.line({"tokens": self._loaded().vocabulary.encode(text)})
        elif op is Op.DETOKENIZE:
            self._writer.line({"text": self._detokenize(token_list_field(message.fields, "tokens"))})
        else:
            engine = self._loaded()
            step = parse_step(message, int(engine.facts["hidden_dim"]))
            self._writer.write(encode_step_reply(self._run(engine, step), message.form))

    def _detokenize(self, tokens: tuple[int, ...]) -> str:
        engine = self._loaded()
        size = int(engine.facts["vocab_size"])
        if tokens and max(tokens) >= size:
            raise MalformedRequest(f"token {max(tokens)} is outside the vocabulary of {size}")
        return engine.vocabulary.decode(tokens)

    def _run(self, engine: Engine, step: Step) -> StepReply:
        rows, token = self._compute(engine, step)
        if step.op is Op.FORWARD_AND_SAMPLE:
            return StepReply(step.request_id, step.seq_len, token_id=token)
        hidden = np.ascontiguousarray(rows, "<f4").tobytes()
        return StepReply(step.request_id, step.seq_len, hidden=hidden)

    def _compute(self, engine: Engine, step: Step) -> tuple[Rows, int | None]:
        self._book.check(step.request_id, step.position, step.seq_len)
        try:
            if step.tokens:
                rows = engine.embed(step.tokens)
            else:
                rows = np.frombuffer(step.hidden, "<f4").reshape(step.seq_len, -1)
            rows = engine.forward(step.request_id, rows, step.position, step.is_prefill)
            token = None
            if step.op is Op.FORWARD_AND_SAMPLE and step.last:
                token = engine.next_token(step.request_id, rows, step.position + step.seq_len - 1, step.sampling)
        except PpError:
            raise
        except MemoryError as error:
            raise WorkerFailed(
                f"out of memory at position {step.position}",
                remedy="lower --context, use a smaller model or more stages",
            ) from error
        self._book.advance(step.request_id, step.position, step.seq_len)
        return rows, token

    def _configure(self, message: Message) -> None:
        fields = message.fields
        model = text_field(fields, "model")
        start = int_field(fields, "layer_start", 0, _MAX_CONTEXT)
        end = int_field(fields, "layer_end", start + 1, _MAX_CONTEXT)
        context = int_field(fields, "context", 1, _MAX_CONTEXT)
        frames = fields.get("frames", "json")
        if frames not in ("json", "binary"):
            raise MalformedRequest("frames is json or binary")
        config = EngineConfig(model, start, end, context, self._device, self._progress)
        if config == self._config:  # loaded and judged already: the file is not read again
            self._book.forget(None)
            self._loaded().reset(None)
        else:
            role = self._role_for(config, self._engines.count_layers(model))
            self._load(config)
            self._role = role
        self._binary = frames == "binary"
        self._writer.line({"status": "configured", **self._state()})

    def _role_for(self, config: EngineConfig, num_layers: int) -> Role:
        """The role a range implies, which must be the stage's."""
        if config.layer_end > num_layers:
            raise MalformedRequest(f"block {config.layer_end - 1} is not in a model of {num_layers} blocks")
        first, last = config.layer_start == 0, config.layer_end == num_layers
        if first and last:
            raise MalformedRequest("the range is the whole model; a stage has a part of it")
        role = Role.FIRST if first else Role.LAST if last else Role.MIDDLE
        if self._stage is not None and role is not self._role:
            raise MalformedRequest(
                f"blocks [{config.layer_start}, {config.layer_end}) of {num_layers} make a {role} stage, "
                f"and this worker's is {self._role}"
            )
        return role

    def _load(self, config: EngineConfig) -> None:
        if self._engine is not None:  # its memory first: both ranges at once may not fit
            self._engine.close()
            self._engine, self._config = None, None
        try:
            engine = self._engines.load(config)
        except PpError:
            raise
        except MemoryError as error:
            raise WorkerFailed(
                f"out of memory while loading blocks [{config.layer_start}, {config.layer_end})",
                remedy="use a smaller model, more stages or a lower --context",
            ) from error
        self._engine, self._config = engine, config
        print(
            f"blocks {config.layer_start}-{config.layer_end - 1} loaded in {engine.load_s:.1f} s, "
            f"kernels ready in {engine.compile_s:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        self._book = RequestBook(config.context)
        hidden_dim = int(engine.facts["hidden_dim"])
        self._reader.decoder.line_limit = line_limit_for(config.context, hidden_dim)
        self._reader.decoder.payload_limit = config.context * hidden_dim * HIDDEN_WIDTH_BYTES
        if self._reader.steps is not None:
            self._reader.steps.payload_limit = config.context * hidden_dim * HIDDEN_WIDTH_BYTES
        self._hidden_dim = hidden_dim

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise EnvironmentFault("no model is loaded", remedy="send configure")
        return self._engine

    def _state(self) -> dict[str, Any]:
        role = None if self._role is None else self._role.value
        if self._engine is None or self._config is None:
            return {"role": role, "device": None, "engine": None, "layers": None}
        engine, config = self._engine, self._config
        return {
            "role": role,
            "device": engine.device,
            "engine": engine.name,
            "layers": [config.layer_start, config.layer_end],
            "context": config.context,
            "bytes": engine.bytes_loaded,
            "load_s": round(engine.load_s, 4),
            "compile_s": round(engine.compile_s, 4),
            "facts": dict(engine.facts),
        }
