"""The whole model in one process: what a chain's tokens are compared with.

`python -m ppsmoke_worker.reference` reads one JSON object from stdin until its end: `model`, `context`, `tokens` (the
prompt), `max_tokens`, and optionally `device`, `stop_token_ids`, `sampling`. It writes `{"status": "ready", "device",
"load_s", "compile_s"}` before it begins, a line `{"token": id}` for each token as it comes, then `{"tokens": [...],
"finish_reason": "eos" | "max_tokens" | "context"}`. A stop token is the last one of `tokens`. An error is one line
`{"status": "fatal", "code", "message", "remedy"}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator

from ppsmoke.errors import ContextExceeded, MalformedRequest, PpError, WorkerFailed
from ppsmoke.stub_model import is_stub_model
from ppsmoke.worker_protocol import Sampling
from ppsmoke.worker_requests import int_field, parse_sampling, text_field, token_list_field
from ppsmoke_worker.channel import EventWriter, die_with
from ppsmoke_worker.engine import Engine, EngineConfig
from ppsmoke_worker.engines import engine_options, real_engines, stub_engines

_REQUEST_ID = "reference"
_MAX = 1 << 24


def main() -> int:
    writer = EventWriter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if parent := os.environ.get("PP_WORKER_PARENT"):
            die_with(int(parent))
        return _answer(sys.stdin.buffer.read(), writer)
    except BrokenPipeError:
        return 0
    except PpError as error:
        failure = error
    except MemoryError:
        failure = WorkerFailed("out of memory: the whole model does not fit into one process")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        failure = WorkerFailed(f"{type(error).__name__} in the reference process: {error}")
    writer.fatal(failure)
    return failure.exit_status


def generate(
    engine: Engine, prompt: list[int], max_tokens: int, context: int, stop: frozenset[int], sampling: Sampling
) -> Iterator[int]:
    """Tokens until a stop token (which is given too), `max_tokens` or the end of the context."""
    rows = engine.forward(_REQUEST_ID, engine.embed(prompt), 0, True)
    position = len(prompt) - 1
    for _ in range(max_tokens):
        token = engine.next_token(_REQUEST_ID, rows, position, sampling)
        yield token
        position += 1
        if token in stop or position >= context:
            return
        rows = engine.forward(_REQUEST_ID, engine.embed([token]), position, False)


def _answer(request: bytes, writer: EventWriter) -> int:
    try:
        fields = json.loads(request)
    except ValueError as error:
        raise MalformedRequest(f"the request is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MalformedRequest("the request is not a JSON object")
    model, context = text_field(fields, "model"), int_field(fields, "context", 1, _MAX)
    prompt = list(token_list_field(fields, "tokens"))
    max_tokens = int_field(fields, "max_tokens", 1, _MAX)
    stop = frozenset(token_list_field(fields, "stop_token_ids") if fields.get("stop_token_ids") is not None else ())
    sampling = parse_sampling(fields.get("sampling"))
    device = fields.get("device")
    if not prompt:
        raise MalformedRequest("tokens is empty")
    if len(prompt) > context:
        raise ContextExceeded(f"a prompt of {len(prompt)} tokens does not fit into a context of {context}")
    engines = stub_engines(None) if is_stub_model(model) else real_engines(engine_options(os.environ, device))
    engine = engines.load(EngineConfig(model, 0, engines.count_layers(model), context, device))
    writer.line({"status": "ready", "device": engine.device, "load_s": engine.load_s, "compile_s": engine.compile_s})
    tokens: list[int] = []
    for token in generate(engine, prompt, max_tokens, context, stop, sampling):
        tokens.append(token)
        writer.line({"token": token})
    full = "max_tokens" if len(tokens) == max_tokens else "context"
    reason = "eos" if tokens[-1] in stop else full
    writer.line({"tokens": tokens, "finish_reason": reason})
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
