"""What the user asked, made ready before anything is spawned: the model opened and checked, the prompt as token ids.

`open_model` gives a `Model`, one interface over a GGUF file and the stub that tests ask for by name (`stub:...`).
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from ppsmoke.chat import render_chat
from ppsmoke.detokenize import StreamingDetokenizer
from ppsmoke.errors import PromptTooLong, UsageError
from ppsmoke.gguf_file import GgufFile, open_gguf
from ppsmoke.messages import GgufSource
from ppsmoke.model_facts import ModelFacts, read_model_facts
from ppsmoke.plan import GgufModelPlan
from ppsmoke.stage_memory import StageMemory, stage_memory
from ppsmoke.stub_model import STUB_EOS_TOKEN, StubModel, parse_stub_model, stub_encode
from ppsmoke.tokenizer import Tokenizer
from ppsmoke.wording import counted


class Detokenizer(Protocol):
    """Token ids in, whole characters out; ends of text and other special tokens are no text."""

    def push(self, token: int) -> str: ...

    def finish(self) -> str: ...


class Model(Protocol):
    """A model as the orchestrator needs it; it computes nothing. `path` is what a worker is told to load."""

    @property
    def model_id(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def source(self) -> GgufSource: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def hidden_dim(self) -> int: ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...

    @property
    def stub(self) -> bool: ...

    def encode_prompt(self, prompt: str, *, raw: bool, system: str | None, now: datetime) -> list[int]: ...

    def detokenizer(self) -> Detokenizer: ...

    def stage_memory(self, layer_start: int, layer_end_exclusive: int, context: int) -> StageMemory: ...


def open_model(model_id: str, path: Path | None, *, nodes_fetch: str = "") -> Model:
    """The model at `path`, or the stub that `model_id` names. Raises EnvironmentFault for a file that cannot serve.

    nodes_fetch: what every node fetches its share of, wherever it runs; the header is enough at `path` then.
    """
    if path is None:
        return StubInUse(model_id, parse_stub_model(model_id))
    gguf = open_gguf(path)
    tokenizer = Tokenizer.from_gguf(gguf.metadata)
    return GgufInUse(model_id, path, gguf, read_model_facts(gguf), tokenizer, nodes_fetch)


@dataclass(frozen=True, slots=True)
class GgufInUse:
    model_id: str
    file: Path
    gguf: GgufFile
    facts: ModelFacts
    tokenizer: Tokenizer
    nodes_fetch: str = ""

    @property
    def path(self) -> str:
        return self.nodes_fetch or str(self.file.resolve())

    @property
    def source(self) -> GgufSource:
        if self.nodes_fetch:
            return GgufSource(kind="cache", key=self.nodes_fetch)
        paths = tuple(str(part.resolve()) for part in self.gguf.paths)
        return GgufSource(kind="file" if len(paths) == 1 else "split", paths=paths)

    @property
    def num_layers(self) -> int:
        return self.facts.num_layers

    @property
    def hidden_dim(self) -> int:
        return self.facts.hidden_dim

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.tokenizer.stop_token_ids))

    @property
    def stub(self) -> bool:
        return False

    def encode_prompt(self, prompt: str, *, raw: bool, system: str | None, now: datetime) -> list[int]:
        """Token ids of the rendered chat, or of the bare prompt. Raises ChatTemplateFailed, UsageError."""
        if raw:
            if system is not None:
                raise UsageError("--system has no place in a raw prompt", remedy="Leave out --raw or --system.")
            return self.tokenizer.encode(prompt, parse_special=True)
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": prompt})
        text = render_chat(self.gguf.metadata, messages, now=now)
        return self.tokenizer.encode(text, parse_special=True)

    def detokenizer(self) -> Detokenizer:
        return StreamingDetokenizer(self.tokenizer)

    def stage_memory(self, layer_start: int, layer_end_exclusive: int, context: int) -> StageMemory:
        return stage_memory(self.gguf, self.facts, layer_start, layer_end_exclusive, context)


@dataclass(frozen=True, slots=True)
class StubInUse:
    """The deterministic test model: byte tokens, text that any number of stages must repeat."""

    model_id: str
    model: StubModel

    @property
    def path(self) -> str:
        return self.model_id

    @property
    def source(self) -> GgufSource:
        return GgufSource(kind="cache", key=self.model_id)

    @property
    def num_layers(self) -> int:
        return self.model.layers

    @property
    def hidden_dim(self) -> int:
        return self.model.hidden

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return (STUB_EOS_TOKEN,)

    @property
    def stub(self) -> bool:
        return True

    def encode_prompt(self, prompt: str, *, raw: bool, system: str | None, now: datetime) -> list[int]:
        return stub_encode(prompt)

    def detokenizer(self) -> Detokenizer:
        return _StubDetokenizer()

    def stage_memory(self, layer_start: int, layer_end_exclusive: int, context: int) -> StageMemory:
        return StageMemory(file_bytes=0, weight_bytes=0, kv_bytes=0, scratch_bytes=0)


class _StubDetokenizer:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return "" if token == STUB_EOS_TOKEN else self._decoder.decode(bytes([token & 0xFF]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def model_plan(model: Model, context: int) -> GgufModelPlan:
    return GgufModelPlan(
        model_id=model.model_id,
        gguf_source=model.source,
        num_layers=model.num_layers,
        hidden_dim=model.hidden_dim,
        max_seq_len=context,
        eos_token_ids=model.stop_token_ids,
    )


def fit_to_context(prompt_tokens: int, max_tokens: int, context: int) -> int:
    """How many tokens may be generated: the last one needs no position of its own.

    Raises UsageError for an empty prompt, PromptTooLong when not even one token fits behind the prompt.
    """
    if prompt_tokens < 1:
        raise UsageError("the prompt is empty", remedy="Give some text with --prompt.")
    if prompt_tokens > context:
        raise PromptTooLong(
            f"the prompt has {counted(prompt_tokens, 'token')}, more than the context of {context}",
            remedy=f"Shorten it, or raise --context to at least {prompt_tokens + max_tokens - 1}.",
        )
    return min(max_tokens, context - prompt_tokens + 1)
