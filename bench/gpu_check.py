"""Does the worker compute the right tokens on this machine's GPU, and how fast? Under 4 minutes, one JSON object.

    python -m bench.gpu_check [--device CUDA] [--model MODEL | --tiny]

The C kernels of the CPU say which tokens follow three prompts; the plain engine on the device has to choose the same
ones wherever its best two are more than SURE_GAP apart (its weights are float16 there). Then it decodes and reads
prompts against the clock. `--device CPU` tries the script where there is no GPU; `--tiny` takes a model made here, with
random weights. The exit status is 0 when all tokens agree, 1 when not, 3 when nothing could be computed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import ModelNotFound, PpError
from ppsmoke.models import DEFAULT_MODEL, find_model, parse_model
from ppsmoke.stats import percentile

SURE_GAP = 0.5
TOKENS = 24
CONTEXT = 1024
DECODED = 64
PREFILLS = (32, 512)
DEADLINE_S = 220.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.part:
        print(json.dumps(_PARTS[options.part](options, json.load(sys.stdin))))
        sys.stdout.flush()
        os._exit(0)  # taking tinygrad's graphs apart takes a second
    started = time.monotonic()
    report: dict[str, Any] = {"equal": None, "error": None}
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = _model(options, Path(folder))
            report |= {"model": options.model if not options.tiny else "tiny"}
            expected = _run_part("reference", ["--device", "CPU"], {"model": model}, started)
            given = ["--device", options.device] if options.device else []
            found = _run_part("device", given, {"model": model, "expected": expected["tokens"]}, started)
            report |= found
        except (PpError, _Failed) as error:
            report["error"] = str(error)
    report["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(report, indent=1))
    return 3 if report["error"] else 0 if report["equal"] else 1


class _Failed(Exception):
    pass


def _run_part(part: str, options: Sequence[str], request: dict[str, Any], started: float) -> dict[str, Any]:
    """In a process of its own: tinygrad serves one device and one set of settings in each."""
    environment = {**os.environ, "PP_WORKER_ENGINE": "kernels" if part == "reference" else "plain"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.gpu_check", "--part", part, *options],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            env=environment,
            timeout=max(1.0, DEADLINE_S - (time.monotonic() - started)),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _Failed(f"the {part} took too long: {DEADLINE_S:g} s are for everything") from error
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        raise _Failed(f"the {part} failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _reference(options: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    engine = _engine(request["model"], options.device)
    tokens = []
    for prompt in _prompts(engine.facts["vocab_size"]):
        rows, position, chosen = engine.forward("r", engine.embed(prompt), 0, True), len(prompt), []
        while len(chosen) < TOKENS:
            chosen.append(int(np.argmax(engine.logits(rows))))
            rows, position = engine.forward("r", engine.embed(chosen[-1:]), position, False), position + 1
        engine.reset(None)
        tokens.append(chosen)
    return {"tokens": tokens}


def _device(options: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    engine = _engine(request["model"], options.device)
    compared, differences = 0, []
    for index, prompt in enumerate(_prompts(engine.facts["vocab_size"])):
        rows, position = engine.forward("r", engine.embed(prompt), 0, True), len(prompt)
        for step, token in enumerate(request["expected"][index]):
            below, best = np.argsort(logits := engine.logits(rows))[-2:]
            if logits[best] - logits[below] > SURE_GAP:
                compared += 1
                if best != token:
                    differences.append({"prompt": index, "step": step, "expected": token, "found": int(best)})
            rows, position = engine.forward("r", engine.embed([token]), position, False), position + 1
        engine.reset(None)
    return {
        "device": engine.device,
        "engine": engine.name,
        "load_s": round(engine.load_s, 3),
        "compile_s": round(engine.compile_s, 3),
        "equal": compared > 0 and not differences,
        "compared": compared,
        "differences": differences,
        **_speed(engine),
    }


def _speed(engine: Any) -> dict[str, Any]:
    vocabulary, prefill = engine.facts["vocab_size"], {}
    for count in PREFILLS:
        tokens = [10 + index * 7 % (vocabulary - 10) for index in range(count)]
        seconds = []
        for _ in range(3):
            engine.reset(None)
            began = time.perf_counter()
            engine.logits(engine.forward("r", engine.embed(tokens), 0, True))
            seconds.append(time.perf_counter() - began)
        prefill[str(count)] = round(count / min(seconds), 1)
    steps = []
    for position in range(PREFILLS[-1], PREFILLS[-1] + DECODED):
        began = time.perf_counter()
        engine.logits(engine.forward("r", engine.embed([17]), position, False))
        steps.append(time.perf_counter() - began)
    decode = {f"p{rank}": round(percentile(steps, rank) * 1e3, 3) for rank in (50, 99)}
    return {"decode_ms": decode, "prefill_tok_s": prefill}


def _engine(model: str, device: str | None) -> Any:
    # tinygrad reads its settings while it is imported, and only this process may import it.
    from ppsmoke_worker.engine import EngineConfig
    from ppsmoke_worker.engines import engine_options, real_engines

    engines = real_engines(engine_options(os.environ, device))
    return engines.load(EngineConfig(model, 0, engines.count_layers(model), CONTEXT, device))


def _prompts(vocabulary: int) -> list[list[int]]:
    return [[10 + (index * stride) % (vocabulary - 10) for index in range(count)] for count, stride in _PROMPTS]


_PROMPTS = ((1, 1), (9, 7), (70, 13))  # length, stride over the vocabulary
_PARTS = {"reference": _reference, "device": _device}


def _model(options: argparse.Namespace, folder: Path) -> str:
    """Raises ModelNotFound for a model that was not fetched."""
    if options.tiny:
        return str(write_tiny_gguf(folder / "tiny.gguf", blocks=3))
    path = find_model(parse_model(options.model))
    if path is None:
        raise ModelNotFound(f"{options.model} is not in the cache: pp-smoke-run models fetch {options.model}")
    return str(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="tinygrad device (default: the first that works of CUDA and CUDA:PTX, or CPU)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a model of the cache or a path")
    parser.add_argument("--tiny", action="store_true", help="a small model with random weights instead")
    parser.add_argument("--part", choices=("reference", "device"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
