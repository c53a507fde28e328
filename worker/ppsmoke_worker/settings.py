"""The worker's command line and its environment: the same settings, the command line wins."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ppsmoke.errors import BadNodeEnvironment
from ppsmoke.stage_memory import ENGINES
from ppsmoke.worker_variables import WEIGHTS
from ppsmoke_worker.engines import EngineOptions, engine_options

DEFAULT_CONTEXT = 2048

_EPILOG = """\
Every option has an environment variable: STAGE, NUM_STAGES, PP_MODEL, PP_CONTEXT, PP_DEVICE, PP_WORKER_STUB=1,
PP_WORKER_ENGINE, PP_WORKER_WEIGHTS, PP_WORKER_THREADS. PP_SMOKE_CACHE is the directory of compiled kernels (else
$XDG_CACHE_HOME/pp-smoke-run, else ~/.cache/pp-smoke-run). PP_WORKER_PARENT=PID makes the worker end with that process
and tell, while it loads and compiles, how far it is: {"status": "progress", "state", "done", "total", "unit"}. A node
sets it, and with PP_WORKER_STEP_FD a socket of its own for the steps, in binary frames.

--engine kernels, the default on the CPU, computes in C on the weights as they are in the file. --engine plain computes
in tinygrad's own operations: on a GPU, or on the CPU several times slower, with weights as float32 or, rounded, as
float16. Where two tokens are almost equally likely another engine may choose the other one: all stages of a chain need
the same.

requests and replies are lines of JSON on stdin and stdout; logs go to stderr. The worker begins with a ready line (or a
fatal one), answers requests in order, and ends on shutdown or at the end of its input. hidden_b64 is base64 of
little-endian float32, seq_len rows of hidden_dim values. A refused request gets {"error": {"code", "message"}} and
changes nothing.

op (which stages)                    reply
  tokenize (first, last)             tokens
  detokenize (first, last)           text
  embed_and_forward (first)          request_id, hidden_b64, seq_len; the prompt, or a part of it
  decode_step (first)                request_id, hidden_b64, seq_len 1
  forward_range (middle)             request_id, hidden_b64, seq_len
  forward_and_sample (last)          request_id, token_id; null when "last" is false (more of the prompt follows)
  configure, reset, shutdown (all)   status; configure gives another model or range, reset forgets a request or all

examples:
  {"op": "tokenize", "text": "Say hello"}
  {"op": "detokenize", "tokens": [19, 5]}
  {"op": "embed_and_forward", "request_id": "r", "tokens": [19, 5], "position": 0}
  {"op": "decode_step", "request_id": "r", "token": 7, "position": 2}
  {"op": "forward_range", "request_id": "r", "hidden_b64": "...", "position": 0, "seq_len": 2}
  {"op": "forward_and_sample", "request_id": "r", "hidden_b64": "...", "position": 0, "seq_len": 2, "last": true}
  {"op": "configure", "model": "m.gguf", "layer_start": 0, "layer_end": 6, "context": 2048, "frames": "json"}
  {"op": "reset", "request_id": "r"}
  {"op": "shutdown"}
"""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`parent` is the pid of a supervising node, None when driven by hand; `step_fd` is the step socket it gave."""

    stage: int | None
    num_stages: int | None
    model: str | None
    context: int
    device: str | None
    stub: bool
    engine: EngineOptions
    parent: int | None
    step_fd: int | None = None


def read_settings(arguments: Sequence[str], env: Mapping[str, str]) -> WorkerSettings:
    """Raises BadNodeEnvironment; a bad command line ends in argparse's own way, status 2."""
    parser = argparse.ArgumentParser(
        prog="pp-worker",
        description="One stage's worker: a contiguous range of a GGUF model's blocks, driven over stdin and stdout.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stage", type=int, help="index of the stage, from 0")
    parser.add_argument("--num-stages", type=int, help="number of stages, at least 2")
    parser.add_argument("--model", help="path of a GGUF file, or stub:layers=8,... with --stub")
    parser.add_argument("--context", type=int, help=f"positions a request may hold (default {DEFAULT_CONTEXT})")
    parser.add_argument("--device", help="tinygrad device such as CPU or CUDA (default: the first that works)")
    parser.add_argument("--weights", choices=WEIGHTS, help="of the plain engine (default f32 on the CPU, else f16)")
    parser.add_argument("--engine", choices=ENGINES, help="default: kernels on the CPU, else plain")
    parser.add_argument("--threads", type=int, help="of the kernels (default: all cores; in prefill the stage's share)")
    parser.add_argument(
        "--stub", action="store_true", help="a deterministic worker without tinygrad and without a file"
    )
    options = parser.parse_args(arguments)
    named = {
        "PP_WORKER_ENGINE": options.engine,
        "PP_WORKER_WEIGHTS": options.weights,
        "PP_WORKER_THREADS": None if options.threads is None else str(options.threads),
    }
    engine = engine_options({**env, **{name: value for name, value in named.items() if value is not None}})
    settings = WorkerSettings(
        stage=options.stage if options.stage is not None else _number(env, "STAGE"),
        num_stages=options.num_stages if options.num_stages is not None else _number(env, "NUM_STAGES"),
        model=options.model or env.get("PP_MODEL") or None,
        context=options.context if options.context is not None else _number(env, "PP_CONTEXT") or DEFAULT_CONTEXT,
        device=options.device or env.get("PP_DEVICE") or None,
        stub=options.stub or env.get("PP_WORKER_STUB", "") not in ("", "0"),
        engine=engine,
        parent=_number(env, "PP_WORKER_PARENT"),
        step_fd=_number(env, "PP_WORKER_STEP_FD"),
    )
    if (settings.stage is None) != (settings.num_stages is None):
        raise BadNodeEnvironment("STAGE and NUM_STAGES go together", remedy="set both or neither")
    if settings.context < 1:
        raise BadNodeEnvironment(f"a context of {settings.context} positions holds nothing")
    asked = replace(settings.engine, device=settings.device, num_stages=settings.num_stages)
    return replace(settings, engine=asked)


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise BadNodeEnvironment(f"{name} is not a whole number: {value!r}") from None
