"""One run of `pp-smoke-run --seed`, and what its JSON says of it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.process import Finished, run
from bench.samples import NotMeasured

COMMAND = (sys.executable, "-m", "ppsmoke.cli")


@dataclass(frozen=True, slots=True)
class Chain:
    """How the chain is run. `threads` of each worker, 0: as it chooses itself."""

    model: str
    stages: int
    context: int = 2048
    threads: int = 0
    deadline_s: float = 600.0

    def command(self, prompt: str, max_tokens: int, *more: str) -> list[str]:
        return [
            *COMMAND,
            *("--seed", "--quiet", "--num-stages", str(self.stages), "--model", self.model),
            *("--context", str(self.context), "--max-tokens", str(max_tokens), "--raw", "--prompt", prompt),
            *more,
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {"PP_WORKER_THREADS": str(self.threads)} if self.threads else {}

    def serve(self, prompt: str, max_tokens: int, watch: Callable[[int], None] | None = None) -> dict[str, Any]:
        """The object that `--json` prints. Raises NotMeasured."""
        done = self._run(self.command(prompt, max_tokens, "--json"), watch=watch)
        body: dict[str, Any] = json.loads(done.stdout)
        return body

    def first_text_s(self, prompt: str, *, cold: bool) -> float:
        """Seconds from the command to the first byte of its text. `cold`: no kernel was compiled before."""
        with tempfile.TemporaryDirectory(prefix="pp-bench-") as cache:
            more = {"PP_SMOKE_CACHE": cache} if cold else {}
            done = self._run(self.command(prompt, 2), env=more)
        if done.first_byte_s is None:
            raise NotMeasured("it printed no text")
        return done.first_byte_s

    def plan_memory(self, prompt: str, max_tokens: int) -> list[dict[str, int]]:
        """Bytes of each stage as the plan announces them."""
        body = json.loads(self._run(self.command(prompt, max_tokens, "--plan", "--json")).stdout)
        memory: list[dict[str, int]] = body["memory"]
        return memory

    def _run(
        self,
        command: list[str],
        *,
        env: Mapping[str, str] | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Finished:
        return run(command, deadline_s=self.deadline_s, env={**self.environment, **(env or {})}, watch=watch)


def decode_figures(body: Mapping[str, Any]) -> dict[str, float]:
    """Decode figures of a run: tok/s, ms/token, and where a token's time goes, ms."""
    timings = body["timings"]
    known = {
        "decode_tok_s": body["decode_tok_s"],
        "decode_p50_ms": _ms(timings["decode_p50_s"]),
        "decode_p99_ms": _ms(timings["decode_p99_s"]),
        "tokens": len(body["tokens"]),
        **hop_parts(timings),
    }
    return {name: value for name, value in known.items() if value is not None}


def hop_parts(timings: Mapping[str, Any]) -> dict[str, float | None]:
    """What an average hop consists of, and what all stages together compute for a token, ms."""
    parts = timings.get("hop_parts") or {}
    computing = [stage.get("compute_p50_s") for stage in timings["stages"]]
    return {
        "hop_ms": _ms(timings.get("hop_s")),
        **{f"hop_{name.removesuffix('_s')}_ms": _ms(value) for name, value in parts.items()},
        "compute_ms": None if None in computing else _ms(sum(computing)),
    }


def prefill_figures(body: Mapping[str, Any]) -> dict[str, float]:
    """Prompt tokens a second until the first token, and that time."""
    first = body["ttft_s"]
    if not first or not body["prompt_tokens"]:
        raise NotMeasured("the run gives no time of its first token")
    return {"prefill_tok_s": body["prompt_tokens"] / first, "first_token_s": first}


def phase_figures(body: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of the phases of a start, as the run measured them itself."""
    timings = body["timings"]
    phases = {name: timings.get(f"{name}_s") for name in ("model", "spawn", "join", "ready", "teardown")}
    phases["prompt"] = body["ttft_s"]
    for name in ("load", "compile"):
        slowest = [stage[f"{name}_s"] for stage in timings["stages"] if stage.get(f"{name}_s") is not None]
        phases[f"slowest_{name}"] = max(slowest, default=None)
    return {f"{name}_s": value for name, value in phases.items() if value is not None}


def interpreter_start_s(deadline_s: float) -> float:
    """Seconds from starting the command until everything it imports is there, and its end."""
    return run([*COMMAND, "--version"], deadline_s=deadline_s).wall_s


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
