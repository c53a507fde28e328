"""Tokens and logits of the whole model in one process, for many prompts at the cost of one start.

    python -m tests.equivalence.one_process ours|tinygrad MODEL    prompts in, answers out, as JSON

`ours` is the worker's engine with the whole range; `tinygrad` is tinygrad's own Transformer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

DEADLINE_S = 600.0


def ask(
    kind: str, model: str, prompts: Sequence[Sequence[int]], count: int = 48, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """For each prompt: `tokens` (greedy), and for `ours` the `logits` after the prompt."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.equivalence.one_process", kind, model],
        input=json.dumps({"prompts": [list(prompt) for prompt in prompts], "count": count}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def ours(model: str, prompts: list[list[int]], count: int) -> list[dict[str, Any]]:
    from ppsmoke_worker.engine import EngineConfig
    from ppsmoke_worker.engines import real_engines
    from ppsmoke_worker.reference import generate

    from ppsmoke.worker_protocol import GREEDY

    engines = real_engines("CPU", os.environ.get("PP_WORKER_WEIGHTS") or "f32")
    engine: Any = engines.load(EngineConfig(model, 0, engines.count_layers(model), 512, "CPU"))
    answers = []
    for prompt in prompts:
        logits = engine.logits(engine.forward("logits", engine.embed(prompt), 0, True))
        engine.reset(None)
        tokens = list(generate(engine, prompt, count, 512, frozenset(), GREEDY))
        engine.reset(None)
        answers.append({"tokens": tokens, "logits": logits.tolist()})
    return answers


def tinygrad(model: str, prompts: list[list[int]], count: int) -> list[dict[str, Any]]:
    from fixtures.record_tinygrad_tokens import prepare, tokens_after, transformer

    prepare()
    whole = transformer(model, 512)
    return [{"tokens": tokens_after(whole, prompt, count)} for prompt in prompts]


if __name__ == "__main__":
    request = json.load(sys.stdin)
    answer = {"ours": ours, "tinygrad": tinygrad}[sys.argv[1]](sys.argv[2], request["prompts"], request["count"])
    print(json.dumps(answer))
