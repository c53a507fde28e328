"""What a run came to: tokens, text, times, and the error if there was one. Pure data and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ppsmoke.errors import LeasesLeft, LeftBehind, PpError
from ppsmoke.objects import FinishReason
from ppsmoke.stats import percentile

PARTS = ("inward", "compute", "outward", "write")


@dataclass(slots=True)
class StageTimes:
    """Seconds of one stage, as it measured them itself; a value is None until the stage reported it.

    `load`: weights read; `compile`: kernels made and run once; `ready`: from provisioning to StageReady;
    `prefill`: its share of the prompt; `decode_p50`, `decode_p99`: one decode step; `parts`: the medians of what a
    decode step consists of (see stage.timing), by name; `round`: from one decode step's object to the next one's.
    """

    stage: int
    layers: tuple[int, int]
    device: str = ""
    load: float | None = None
    compile: float | None = None
    ready: float | None = None
    prefill: float | None = None
    decode_p50: float | None = None
    decode_p99: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    round: float | None = None

    def became_ready(self, device: str, timings: Mapping[str, float]) -> None:
        """Take over what a StageReady reported."""
        self.device = device
        self.load, self.compile, self.ready = (timings.get(name) for name in ("load", "compile", "ready"))

    def stopped(self, timings: Mapping[str, float]) -> None:
        """Take over what a StageStopped reported."""
        self.prefill = timings.get("prefill")
        self.decode_p50, self.decode_p99 = timings.get("decode_p50"), timings.get("decode_p99")
        self.round = timings.get("decode_round_p50")
        named = {name: timings.get(f"decode_{name}_p50") for name in PARTS}
        self.parts = {name: value for name, value in named.items() if value is not None}

    def describe(self) -> str:
        first, end = self.layers
        seconds = f"load {self.load or 0:.1f} s  compile {self.compile or 0:.1f} s"
        return f"stage {self.stage}  blocks {first}-{end - 1}  {self.device}  {seconds}"


@dataclass(slots=True)
class Times:
    """Seconds of the run's phases; `prompt_at` and `tokens_at` are clock readings of the prompt and each token."""

    model: float | None = None
    spawn: float | None = None
    join: float | None = None
    ready: float | None = None
    teardown: float | None = None
    total: float | None = None
    prompt_at: float | None = None
    tokens_at: list[float] = field(default_factory=list)
    stages: list[StageTimes] = field(default_factory=list)

    @property
    def first_token(self) -> float | None:
        """From the prompt's injection to the first token."""
        return self.tokens_at[0] - self.prompt_at if self.tokens_at and self.prompt_at is not None else None

    @property
    def decode(self) -> float | None:
        """From the first token to the last."""
        return self.tokens_at[-1] - self.tokens_at[0] if len(self.tokens_at) > 1 else None

    @property
    def token_gaps(self) -> list[float]:
        """Between consecutive tokens."""
        return [after - before for before, after in pairwise(self.tokens_at)]

    def decode_tok_s(self) -> float | None:
        """Tokens a second after the first one."""
        return (len(self.tokens_at) - 1) / self.decode if self.decode else None

    def hop(self) -> float | None:
        """Seconds from the end of one stage's computing to the beginning of the next one's: what is left of a token's
        median way round the chain, as the first stage sees it, after every stage's own median of computing, shared out
        over the edges of the loop (as many as stages)."""
        computing = [stage.parts.get("compute") for stage in self.stages]
        known = [value for value in computing if value is not None]
        if not known or len(known) != len(computing) or self.stages[0].round is None:
            return None
        return max(0.0, self.stages[0].round - sum(known)) / len(known)

    def hop_parts(self) -> dict[str, float] | None:
        """What a hop consists of, in order: `outward` and `write` at the stage it leaves, `wire` between two nodes,
        `inward` at the stage it comes to; means over the stages of their medians, and the rest for the wire."""
        hop = self.hop()
        if hop is None:
            return None
        mean = {
            name: sum(stage.parts.get(name, 0.0) for stage in self.stages) / len(self.stages)
            for name in ("outward", "write", "inward")
        }
        wire = max(0.0, hop - sum(mean.values()))
        return {"outward": mean["outward"], "write": mean["write"], "wire": wire, "inward": mean["inward"]}

    def as_json(self) -> dict[str, Any]:
        gaps = self.token_gaps
        parts = self.hop_parts()
        return {
            "model_s": _rounded(self.model),
            "spawn_s": _rounded(self.spawn),
            "join_s": _rounded(self.join),
            "ready_s": _rounded(self.ready),
            "prefill_s": _rounded(self.first_token, 6),
            "decode_s": _rounded(self.decode),
            "teardown_s": _rounded(self.teardown),
            "total_s": _rounded(self.total),
            "decode_p50_s": _rounded(percentile(gaps, 50), 6) if gaps else None,
            "decode_p99_s": _rounded(percentile(gaps, 99), 6) if gaps else None,
            "hop_s": _rounded(self.hop(), 6),
            "hop_parts": parts and {f"{name}_s": _rounded(value, 6) for name, value in parts.items()},
            "stages": [
                {
                    "stage": stage.stage,
                    "layers": list(stage.layers),
                    "device": stage.device or None,
                    "load_s": _rounded(stage.load),
                    "compile_s": _rounded(stage.compile),
                    "ready_s": _rounded(stage.ready),
                    "prefill_s": _rounded(stage.prefill),
                    "decode_p50_s": _rounded(stage.decode_p50, 6),
                    "decode_p99_s": _rounded(stage.decode_p99, 6),
                    **{f"{name}_p50_s": _rounded(stage.parts.get(name), 6) for name in PARTS},
                }
                for stage in self.stages
            ],
        }


@dataclass(slots=True)
class RunResult:
    """`tokens` are all sampled ids, the end token included; `text` is what they decode to.

    Of a held run they are the newest answer's, like `prompt_tokens`, `finish_reason` and the times of tokens; `answers`
    is how many are whole, None where the run was not held.

    `members`: the membership table when the teardown began, a dict a member. `edges`: the ways between
    neighbours, measured before the prompt. `left_behind`: what could not be verified
    as gone; it is the `error` too when there is no earlier one.
    """

    run_id: str
    model_id: str
    num_stages: int
    prompt_tokens: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    times: Times = field(default_factory=Times)
    members: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    error: PpError | None = None
    left_behind: LeftBehind | None = None
    answers: int | None = None

    @property
    def exit_status(self) -> int:
        """Of the error; what costs money until somebody acts outweighs it."""
        if isinstance(self.left_behind, LeasesLeft):
            return self.left_behind.exit_status
        return self.error.exit_status if self.error is not None else 0

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints; documented in docs/json.md."""
        body: dict[str, Any] = {
            "run_id": self.run_id,
            "model": self.model_id,
            "num_stages": self.num_stages,
            "prompt_tokens": self.prompt_tokens or None,
            "tokens": self.tokens,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "timings": self.times.as_json(),
            "members": self.members,
            "edges": self.edges,
            "decode_tok_s": _rounded(self.times.decode_tok_s(), 2),
            "ttft_s": _rounded(self.times.first_token, 6),
            "exit_status": self.exit_status,
        }
        if self.answers is not None:
            body["answers"] = self.answers
        if self.error is not None:
            body["error"] = error_json(self.error)
        if self.left_behind is not None:
            body["left_behind"] = self.left_behind.what
        return body


def error_json(error: PpError) -> dict[str, Any]:
    """`code`, `stage`, `phase`, `message`, and what to do about it."""
    return {
        "code": error.code,
        "stage": error.stage,
        "phase": error.phase,
        "message": error.what,
        "remedy": error.remedy,
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
