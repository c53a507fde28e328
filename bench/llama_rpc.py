"""llama.cpp, alone and with RPC servers, on the same prompts. It runs the programs it is given and builds none.

`DIR` holds `llama-completion` (or `llama-cli`), `llama-bench`, and `ggml-rpc-server` (or the older `rpc-server`).
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.process import run, session
from bench.samples import NotMeasured

_COMPLETION = ("llama-completion", "llama-cli")
_BENCH = ("llama-bench",)
_SERVER = ("ggml-rpc-server", "rpc-server")
_LISTENING_S = 20.0
_ALL_BLOCKS = "99"


@dataclass(frozen=True, slots=True)
class LlamaPrograms:
    completion: Path
    bench: Path
    server: Path


def find_programs(folder: Path) -> LlamaPrograms:
    """The programs in a folder or its `bin`. Raises FileNotFoundError that names what is missing."""
    found = [_first_of(folder, names) for names in (_COMPLETION, _BENCH, _SERVER)]
    return LlamaPrograms(*found)


@dataclass(frozen=True, slots=True)
class Llama:
    """How llama.cpp is run. `servers` 0: one process; else so many RPC servers on this machine, `threads` each."""

    programs: LlamaPrograms
    model: str
    servers: int
    threads: int
    context: int = 2048
    deadline_s: float = 600.0

    def complete(self, prompt: str, max_tokens: int) -> dict[str, float]:
        """Figures of one prompt, as `llama-completion` states them. Raises NotMeasured."""
        command = [
            *(str(self.programs.completion), "-m", self.model, "-t", str(self.threads), "-c", str(self.context)),
            *("-no-cnv", "--temp", "0", "--ignore-eos", "-n", str(max_tokens), "-p", prompt),
        ]
        with self._rpc() as more:
            done = run([*command, *more], deadline_s=self.deadline_s)
        return parse_completion(done.stderr)

    def prefill(self, prompt_tokens: int, micro_batch: int) -> dict[str, float]:
        """Prompt tokens a second by `llama-bench` with a micro-batch of this size: over RPC they overlap."""
        command = [
            *(str(self.programs.bench), "-m", self.model, "-t", str(self.threads), "-p", str(prompt_tokens)),
            *("-n", "0", "-r", "1", "-ub", str(micro_batch), "-o", "jsonl"),
        ]
        with self._rpc() as more:
            done = run([*command, *more], deadline_s=self.deadline_s)
        return {"prefill_tok_s": parse_bench(done.stdout)}

    @contextmanager
    def _rpc(self) -> Iterator[list[str]]:
        """Start the servers, fresh for each run; gives the client's options."""
        if not self.servers:
            yield []
            return
        with ExitStack() as stack:
            ports = [_free_port() for _ in range(self.servers)]
            for port in ports:
                server = (str(self.programs.server), "-H", "127.0.0.1", "-p", str(port), "-t", str(self.threads))
                stack.enter_context(session(server))
            for port in ports:
                _wait_listening(port)
            yield ["-ngl", _ALL_BLOCKS, "--rpc", ",".join(f"127.0.0.1:{port}" for port in ports)]


def parse_completion(stderr: str) -> dict[str, float]:
    """From llama.cpp's own timings. Raises NotMeasured when they are not there."""
    prompt = re.search(r"prompt eval time =\s*([\d.]+) ms /\s*(\d+) tokens", stderr)
    decode = re.search(r"(?<!prompt )eval time =\s*([\d.]+) ms /\s*(\d+) runs", stderr)
    if prompt is None:
        raise NotMeasured("it printed no timings")
    found = {
        "prompt_tokens": float(prompt[2]),
        "prefill_tok_s": float(prompt[2]) / float(prompt[1]) * 1e3,
        "first_token_s": float(prompt[1]) / 1e3,
    }
    if decode is not None and float(decode[1]) > 0:
        found["tokens"] = float(decode[2]) + 1
        found["decode_tok_s"] = float(decode[2]) / float(decode[1]) * 1e3
        found["decode_mean_ms"] = float(decode[1]) / float(decode[2])
    return found


def parse_bench(jsonl: str) -> float:
    """Tokens a second of the one test in the output of `llama-bench -o jsonl`. Raises NotMeasured."""
    for line in jsonl.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            return float(json.loads(line)["avg_ts"])
    raise NotMeasured("it printed no result")


def _first_of(folder: Path, names: Sequence[str]) -> Path:
    for place in (folder, folder / "bin"):
        for name in names:
            if (place / name).is_file():
                return (place / name).resolve()
    raise FileNotFoundError(f"{folder} has no {' and no '.join(names)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_listening(port: int) -> None:
    ends = time.monotonic() + _LISTENING_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0):
                return
        except OSError:
            if time.monotonic() > ends:
                raise NotMeasured(f"its RPC server on port {port} did not listen within {_LISTENING_S:g} s") from None
            time.sleep(0.02)
