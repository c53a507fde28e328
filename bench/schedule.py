"""What is measured, in which order: every round has each case once, ours and the peer's in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bench.chain import Chain, decode_figures, interpreter_start_s, phase_figures, prefill_figures
from bench.edge_bytes import edge_bytes, loopback_bytes
from bench.goals import DECODE, FIRST_COLD, FIRST_WARM, LATE, MEMORY
from bench.llama_rpc import Llama, LlamaPrograms
from bench.memory import MemoryWatch, memory_figures
from bench.prompts import PromptMaker
from bench.samples import Case, NotMeasured
from bench.worker import Worker

Figures = Mapping[str, float]
Step = tuple[Case, Callable[[], Figures]]

PARTS = ("decode", "prefill", "start", "memory", "bytes")
_SHORT_PROMPT = 8
_LATE_TOKENS = 25
_BYTES_TOKENS = (16, 144)
_MEMORY_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. `stages`: 1 is the worker alone. `parts`: decode, prefill, start, memory, bytes.

    `threads`: tried for the worker alone and for llama.cpp. `chain_threads`: tried for the workers of a chain, 0 as
    they choose themselves. `prompts`: prompt lengths of the prefill, tokens. `servers`: RPC servers of llama.cpp.
    `micro_batches`: tried for its prefill.
    """

    stages: tuple[int, ...] = (1, 2, 3, 5, 8)
    threads: tuple[int, ...] = (1, 2)
    chain_threads: tuple[int, ...] = (0, 1)
    tokens: int = 97
    prompts: tuple[int, ...] = (32, 512, 2000)
    servers: tuple[int, ...] = (2, 5)
    micro_batches: tuple[int, ...] = (64, 128, 512)
    rounds: int = 3
    context: int = 2048
    parts: tuple[str, ...] = PARTS


class Schedule:
    """The steps of each round for one model, a path or a stub's name. `peer` None: no llama.cpp."""

    def __init__(self, scale: Scale, model: str, peer: LlamaPrograms | None) -> None:
        self._scale = scale
        self._model = model
        self._peer = peer
        self._prompts = PromptMaker(model)
        self._texts: dict[int, str] = {}

    def steps(self, round_index: int) -> Iterator[Step]:
        """What does not change from run to run (memory, bytes) is measured in the first round only."""
        parts = {"decode": self._decode, "prefill": self._prefill, "start": self._start}
        once = {"memory": self._memory, "bytes": self._bytes}
        for name in self._scale.parts:
            if name in parts:
                yield from parts[name]()
            elif round_index == 0:
                yield from once[name]()

    def _decode(self) -> Iterator[Step]:
        text, tokens = self._text(_SHORT_PROMPT), self._scale.tokens
        if 1 in self._scale.stages:
            for threads in self._scale.threads:
                yield Case("worker", DECODE, 1, threads), partial(self._worker, text, tokens, threads)
                yield from self._llama_decode(0, threads)
            yield Case("worker", DECODE, 1), partial(self._worker, text, tokens, 0)
        for stages in self._chains():
            for threads in self._scale.chain_threads:
                yield Case("chain", DECODE, stages, threads), partial(self._chain_decode, stages, threads, text, tokens)
            for threads in self._scale.threads if stages in self._scale.servers else ():
                yield from self._llama_decode(stages, threads)
        late = max(self._scale.prompts)
        if 1 in self._scale.stages and late + _LATE_TOKENS <= self._scale.context and late >= 2000:
            for threads in self._scale.threads[:1]:
                yield Case("worker", LATE, 1, threads), partial(self._worker, self._text(late), _LATE_TOKENS, threads)

    def _prefill(self) -> Iterator[Step]:
        for length in self._scale.prompts:
            what, text = f"prefill {length}", self._text(length)
            if 1 in self._scale.stages:
                for threads in self._scale.threads:
                    yield Case("worker", what, 1, threads), partial(self._worker, text, 1, threads)
                    if length == 512:
                        yield from self._llama_prefill(0, threads, length)
            for stages in self._chains():
                yield Case("chain", what, stages), partial(self._chain_prefill, stages, text)
                if length == 512 and stages in self._scale.servers:
                    for threads in self._scale.threads:
                        yield from self._llama_prefill(stages, threads, length)

    def _start(self) -> Iterator[Step]:
        text = self._text(_SHORT_PROMPT)
        for stages in self._chains():
            if stages in (2, 5):
                yield Case("chain", FIRST_WARM, stages), partial(self._first_text, stages, text, cold=False)
                yield Case("chain", FIRST_COLD, stages), partial(self._first_text, stages, text, cold=True)

    def _memory(self) -> Iterator[Step]:
        for stages in self._chains():
            yield Case("chain", MEMORY, stages), partial(self._chain_memory, stages)

    def _bytes(self) -> Iterator[Step]:
        for stages in self._chains():
            yield Case("chain", "bytes", stages), partial(self._chain_bytes, stages)

    def _llama_decode(self, servers: int, threads: int) -> Iterator[Step]:
        if self._peer is not None:
            run = self._llama(self._peer, servers, threads)
            case = Case("llama-rpc" if servers else "llama", DECODE, servers, threads)
            yield case, partial(run.complete, self._text(_SHORT_PROMPT), self._scale.tokens)

    def _llama_prefill(self, servers: int, threads: int, length: int) -> Iterator[Step]:
        for micro_batch in self._scale.micro_batches if self._peer is not None else ():
            assert self._peer is not None
            run = self._llama(self._peer, servers, threads)
            who = "llama-rpc" if servers else "llama"
            case = Case(who, f"prefill {length}", servers, threads, f"micro-batch {micro_batch}")
            yield case, partial(run.prefill, length, micro_batch)

    # ---- one run each

    def _worker(self, text: str, tokens: int, threads: int) -> Figures:
        worker = Worker(self._model, context=self._scale.context, threads=threads)
        return worker.generate(self._prompts.tokens(text), tokens)

    def _chain_decode(self, stages: int, threads: int, text: str, tokens: int) -> Figures:
        return decode_figures(self._chain(stages, threads).serve(text, tokens))

    def _chain_prefill(self, stages: int, text: str) -> Figures:
        return prefill_figures(self._chain(stages).serve(text, 1))

    def _first_text(self, stages: int, text: str, *, cold: bool) -> Figures:
        chain = self._chain(stages)
        first = {"first_text_s": chain.first_text_s(text, cold=cold)}
        if cold:
            return first
        return {**first, "interpreter_s": interpreter_start_s(60.0), **phase_figures(chain.serve(text, 2))}

    def _chain_memory(self, stages: int) -> Figures:
        chain, text = self._chain(stages), self._text(_SHORT_PROMPT)
        tokens = min(_MEMORY_TOKENS, self._scale.context - _SHORT_PROMPT)
        plan = chain.plan_memory(text, tokens)
        watch = MemoryWatch()
        try:
            body = chain.serve(text, tokens, watch)
        finally:
            watch.stop()
        used = (body["prompt_tokens"] + len(body["tokens"])) / self._scale.context
        return memory_figures(watch.found, plan, used)

    def _chain_bytes(self, stages: int) -> Figures:
        chain, text = self._chain(stages), self._text(_SHORT_PROMPT)
        carried, made = [], []
        for tokens in _BYTES_TOKENS:
            before = loopback_bytes()
            body = chain.serve(text, tokens)
            after = loopback_bytes()
            if before is None or after is None:
                return edge_bytes(self._prompts.hidden_dim)
            carried.append(after - before)
            made.append(len(body["tokens"]))
        if made[1] <= made[0]:
            raise NotMeasured(f"the text ended after {made[1]} tokens")
        a_token = (carried[1] - carried[0]) / (made[1] - made[0])
        # Less for more tokens: others used the interface, and the figure says nothing.
        return edge_bytes(self._prompts.hidden_dim) | ({"loopback_bytes": a_token} if a_token > 0 else {})

    def _chain(self, stages: int, threads: int = 0) -> Chain:
        return Chain(self._model, stages, context=self._scale.context, threads=threads)

    def _llama(self, programs: LlamaPrograms, servers: int, threads: int) -> Llama:
        return Llama(programs, self._model, servers, threads, context=self._scale.context)

    def _chains(self) -> list[int]:
        return [stages for stages in self._scale.stages if stages > 1]

    def _text(self, length: int) -> str:
        if length not in self._texts:
            self._texts[length] = self._prompts.of_length(length)
        return self._texts[length]
