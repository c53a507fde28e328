"""Tokens and logits of the whole model in one process, for many models and prompts at the cost of one start.

    python -m tests.equivalence.one_process ours|tinygrad       a request a line in, an answer a line out, as JSON

`ours` is the worker's engine with the whole range; `tinygrad` is tinygrad's own Transformer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tests.equivalence.cases import CONTEXT, Case

DEADLINE_S = 600.0

Answerer = Callable[[dict[str, Any]], list[Any]]


@dataclass
class OneProcess:
    """A context manager, the process with it. It keeps only the model it was asked about last."""

    kind: Literal["ours", "tinygrad"]
    env: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.equivalence.one_process", self.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.env},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE_S)

    def tokens(self, model: str, cases: Sequence[Case]) -> list[list[int]]:
        """Those of each case; how it is cut does not matter here, and tinygrad is asked greedily."""
        return self._ask({"model": model, "cases": [asdict(case) for case in cases]})

    def logits(self, model: str, prompts: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
        """Those after each prompt, (vocabulary,); `ours` only."""
        answers = self._ask({"model": model, "prompts": [list(prompt) for prompt in prompts]})
        return [np.array(answer) for answer in answers]

    def steps(
        self, model: str, prompt: Sequence[int], continuation: Sequence[int], context: int = CONTEXT
    ) -> list[tuple[int, float]]:
        """The best next token, and how far it is ahead, after the prompt and each token of a continuation."""
        request = {"model": model, "context": context, "prompt": list(prompt), "continuation": list(continuation)}
        return [(token, ahead) for token, ahead in self._ask(request)]

    def _ask(self, request: dict[str, Any]) -> list[Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
            watchdog.join()
        assert line, f"the {self.kind} process ended or took over {DEADLINE_S:g} s; its stderr says why"
        answers: list[Any] = json.loads(line)
        return answers


def _ours() -> Answerer:
    from ppsmoke_worker.engine import EngineConfig
    from ppsmoke_worker.engines import engine_options, real_engines
    from ppsmoke_worker.reference import generate

    from ppsmoke.worker_protocol import Sampling

    engines = real_engines(engine_options(os.environ, "CPU"))
    loaded: dict[tuple[str, int], Any] = {}

    def engine_of(model: str, context: int) -> Any:
        if (model, context) not in loaded:
            for other in loaded.values():
                other.close()
            loaded.clear()
            config = EngineConfig(model, 0, engines.count_layers(model), context, "CPU")
            loaded[model, context] = engines.load(config)
        return loaded[model, context]

    def answer(request: dict[str, Any]) -> list[Any]:
        engine, answers = engine_of(request["model"], request.get("context", CONTEXT)), []
        if "continuation" in request:
            rows = engine.forward("steps", engine.embed(request["prompt"]), 0, True)
            for position, token in enumerate([*request["continuation"], None], len(request["prompt"])):
                below, best = np.argsort(logits := np.array(engine.logits(rows)))[-2:]
                answers.append((int(best), float(logits[best] - logits[below])))
                if token is not None:
                    rows = engine.forward("steps", engine.embed([token]), position, False)
            engine.reset(None)
        for prompt in request.get("prompts", []):
            answers.append(engine.logits(engine.forward("logits", engine.embed(prompt), 0, True)).tolist())
            engine.reset(None)
        for case in request.get("cases", []):
            sampling = Sampling(**case["sampling"])
            answers.append(list(generate(engine, case["prompt"], case["count"], CONTEXT, frozenset(), sampling)))
            engine.reset(None)
        return answers

    return answer


def _tinygrad() -> Answerer:
    from fixtures.record_tinygrad_tokens import prepare, tokens_after, transformer

    prepare()

    def answer(request: dict[str, Any]) -> list[Any]:
        whole = transformer(request["model"], CONTEXT)
        return [tokens_after(whole, case["prompt"], case["count"]) for case in request["cases"]]

    return answer


def main() -> None:
    answer = {"ours": _ours, "tinygrad": _tinygrad}[sys.argv[1]]()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
