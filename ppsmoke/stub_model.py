"""The stub worker's model: a pseudo model string, its facts, its vocabulary, and the text it is bound to produce.

`stub:layers=8,hidden=64,vocab=256` names a model without a file. Its vocabulary is the 256 bytes, token 0 ends the
text, and the next token is a function of the whole prefix, so every split gives the same text and any lost, repeated
or corrupted row gives an error or another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from ppsmoke.errors import UsageError

STUB_PREFIX = "stub:"
STUB_EOS_TOKEN = 0
_MASK = 2**64 - 1
_WORDS = b"etaoin shrdlu cmfwyp vbgkqj xz .,"


@dataclass(frozen=True, slots=True)
class StubModel:
    """Shape, then faults to order: steps are counted from 0 in each worker since it was loaded or reset."""

    layers: int = 8
    hidden: int = 64
    vocab: int = 256
    context: int = 4096
    eos_after: int = 0  # the token after this many is the end of the text; 0: never
    load_ms: int = 0
    step_ms: int = 0
    load_fail: int = 0  # 1: loading ends with an error
    fail_at: int = -1  # this step answers an error
    hang_at: int = -1  # this step never answers
    exit_at: int = -1  # the process exits with status 7 in this step
    kill_at: int = -1  # the process kills itself with SIGKILL in this step
    at_stage: int = -1  # the faults above, and step_ms, concern this stage only; -1: every stage

    def __str__(self) -> str:
        values = asdict(self)
        named = [f"{f.name}={values[f.name]}" for f in fields(self) if values[f.name] != f.default]
        return STUB_PREFIX + ",".join(named)


def is_stub_model(model: str) -> bool:
    return model.startswith(STUB_PREFIX)


def parse_stub_model(model: str) -> StubModel:
    """`stub:name=number,...`, every name optional; raises UsageError."""
    if not is_stub_model(model):
        raise UsageError(
            f"the stub worker has no model {model!r}",
            remedy="name one such as stub:layers=8,hidden=64,vocab=256",
        )
    known = {f.name for f in fields(StubModel)}
    values: dict[str, int] = {}
    for item in filter(None, model.removeprefix(STUB_PREFIX).split(",")):
        name, _, value = item.partition("=")
        if name not in known:
            raise UsageError(f"a stub model has no {name!r}; it has {', '.join(sorted(known))}")
        try:
            values[name] = int(value)
        except ValueError:
            raise UsageError(f"the stub model's {name} is not a whole number: {value!r}") from None
    stub = StubModel(**values)
    if stub.layers < 1 or stub.hidden < 4 or stub.vocab < 256 or stub.context < 1:
        raise UsageError("a stub model needs layers >= 1, hidden >= 4, vocab >= 256 and context >= 1")
    return stub


def stub_encode(text: str) -> list[int]:
    return list(text.encode())


def stub_decode(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if 0 < token < 256).decode(errors="replace")


def fold_prefix(state: int, token: int, position: int) -> int:
    """The digest of a prefix one token longer (64 bit); the empty prefix is 0."""
    mixed = (state ^ (token + 1) * 0x9E3779B97F4A7C15 ^ position * 0xBF58476D1CE4E5B9) & _MASK
    mixed = (mixed ^ mixed >> 29) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 32


def token_after(state: int, generated: int, stub: StubModel, seed: int = 0) -> int:
    """The token that follows a prefix with digest `state` when `generated` tokens came before it in this text."""
    if stub.eos_after and generated >= stub.eos_after:
        return STUB_EOS_TOKEN
    return _WORDS[fold_prefix(state, seed, generated) % len(_WORDS)]


def stub_tokens(prompt: Sequence[int], count: int, stub: StubModel, seed: int = 0) -> list[int]:
    """What a chain of stub workers must say after `prompt`: `count` tokens, or fewer when token 0 ends them."""
    state = 0
    for position, token in enumerate(prompt):
        state = fold_prefix(state, token, position)
    out: list[int] = []
    while len(out) < count:
        token = token_after(state, len(out), stub, seed)
        out.append(token)
        if token == STUB_EOS_TOKEN:
            break
        state = fold_prefix(state, token, len(prompt) + len(out) - 1)
    return out
