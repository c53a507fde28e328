"""The whole model in one worker process, driven through its pipes: what a chain of one stage would be."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.process import run
from bench.samples import NotMeasured
from ppsmoke.stats import percentile

_COMMAND = (sys.executable, "-P", "-m", "ppsmoke_worker.reference")


@dataclass(frozen=True, slots=True)
class Worker:
    """How the worker is run. `threads`, 0: as it chooses itself."""

    model: str
    context: int = 2048
    threads: int = 0
    deadline_s: float = 600.0

    def generate(self, prompt: Sequence[int], max_tokens: int) -> dict[str, float]:
        """Figures of one prompt: its prefill, and the decode steps after it. Raises NotMeasured."""
        request = {"model": self.model, "context": self.context, "tokens": list(prompt), "max_tokens": max_tokens}
        done = run(
            _COMMAND,
            stdin=json.dumps(request),
            deadline_s=self.deadline_s,
            env={"PP_WORKER_THREADS": str(self.threads)} if self.threads else None,
        )
        ready: float | None = None
        tokens: list[float] = []
        for line in done.lines:
            said: dict[str, Any] = json.loads(line.text)
            if said.get("status") == "ready":
                ready = line.at_s
            elif "token" in said:
                tokens.append(line.at_s)
        return figures(len(prompt), ready, tokens)


def figures(prompt_tokens: int, ready: float | None, tokens: Sequence[float]) -> dict[str, float]:
    """From the moments (seconds) of readiness and of each token. Raises NotMeasured without them."""
    if ready is None or not tokens:
        raise NotMeasured("the worker gave no tokens")
    found = {"engine_ready_s": ready, "first_token_s": tokens[0] - ready, "tokens": float(len(tokens))}
    # Lines that came in one piece have no time between them.
    if tokens[0] > ready:
        found["prefill_tok_s"] = prompt_tokens / (tokens[0] - ready)
    if tokens[-1] > tokens[0]:
        gaps = [after - before for before, after in pairwise(tokens)]
        found["decode_tok_s"] = len(gaps) / (tokens[-1] - tokens[0])
        found["decode_p50_ms"] = percentile(gaps, 50) * 1e3
        found["decode_p99_ms"] = percentile(gaps, 99) * 1e3
    return found
