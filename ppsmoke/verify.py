"""`--verify`: the whole model in one process decodes the same request; are the tokens the same?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import RunFailed, error_class
from ppsmoke.logs import without_tracebacks
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.signals import ending, ending_remedy, signals_held
from ppsmoke.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Verification:
    """`first_difference`: index of the first token that is not the same, None when all are."""

    tokens: tuple[int, ...]
    reference: tuple[int, ...]

    @property
    def first_difference(self) -> int | None:
        for index, (ours, theirs) in enumerate(zip(self.tokens, self.reference, strict=False)):
            if ours != theirs:
                return index
        shorter = min(len(self.tokens), len(self.reference))
        return None if len(self.tokens) == len(self.reference) else shorter

    @property
    def equal(self) -> bool:
        return self.first_difference is None

    def describe(self) -> str:
        at = self.first_difference
        if at is None:
            if len(self.tokens) == 1:
                return "verified: the token equals that of one process"
            return f"verified: all {len(self.tokens)} tokens equal those of one process"
        return (
            f"the stages and one process part at token {at}: {_token_at(self.tokens, at)} here, "
            f"{_token_at(self.reference, at)} in one process"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "first_difference": self.first_difference,
            "reference_tokens": list(self.reference),
        }


def _token_at(tokens: Sequence[int], index: int) -> str:
    return str(tokens[index]) if index < len(tokens) else "the end"


def verify_tokens(options: RunOptions, tokens: Sequence[int], terminal: Terminal) -> Verification:
    """Decode the request in one process and compare. Raises RunFailed, or what the worker's code stands for."""
    terminal.waiting("verifying in one process")
    try:
        reference = _decode_in_one_process(options, terminal)
    finally:
        terminal.settle()
    return Verification(tuple(tokens), tuple(reference))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with its compilers, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _decode_in_one_process(options: RunOptions, terminal: Terminal) -> list[int]:
    generation = options.generation
    request = {
        "model": options.model.path,
        "context": options.context,
        "device": options.device or None,
        "tokens": list(options.prompt_tokens),
        "max_tokens": generation.max_tokens,
        "stop_token_ids": list(generation.eos_token_ids),
        "sampling": {
            "temperature": generation.temperature,
            "top_p": generation.top_p,
            "seed": generation.sample_seed,
        },
    }
    process: subprocess.Popen[bytes] | None = None
    try:
        with signals_held():
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ppsmoke_worker.reference"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                env={**os.environ, "PP_WORKER_PARENT": str(os.getpid())},
            )
        out, err = process.communicate(json.dumps(request).encode(), timeout=options.deadlines.response)
    except subprocess.TimeoutExpired:
        raise RunFailed(
            f"one process did not decode the request within {options.deadlines.response:g} s",
            phase="verify",
            remedy="Raise --response-timeout, or leave --verify out.",
        ) from None
    finally:
        if process is not None:
            with signals_held():
                _end(process)
    tail = without_tracebacks(line for line in err.decode(errors="replace").splitlines() if line.strip())[-12:]
    for line in reversed(out.splitlines()):
        answer = json.loads(line)
        if answer.get("status") == "fatal":
            kind = error_class(str(answer.get("code"))) or RunFailed
            raise kind(str(answer.get("message")), phase="verify", log_tail=tail)
        if "tokens" in answer:
            return [int(token) for token in answer["tokens"]]
    raise RunFailed(
        f"the verifying process ended {ending(process.returncode)} and gave no tokens",
        phase="verify",
        log_tail=tail,
        remedy=ending_remedy(process.returncode),
    )
