"""A held run: after the first answer it goes on with further prompts. Who gives them, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ppsmoke.objects import FinishReason
from ppsmoke.wording import counted


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that can be served: its token ids, and how many may be generated behind it."""

    tokens: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `ttft_s`: seconds from the prompt's injection to the first token; `decode_tok_s`: tokens a
    second after it, None where there was only one."""

    prompt_tokens: int
    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    ttft_s: float
    decode_tok_s: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "tokens": list(self.tokens),
            "text": self.text,
            "finish_reason": self.finish_reason,
            "ttft_s": round(self.ttft_s, 6),
            "decode_tok_s": None if self.decode_tok_s is None else round(self.decode_tok_s, 2),
        }

    def describe(self) -> str:
        parts = [f"{counted(len(self.tokens), 'token')} ({self.finish_reason})", f"first token {self.ttft_s:.2f} s"]
        if self.decode_tok_s is not None:
            parts.append(f"{self.decode_tok_s:.1f} tok/s")
        return "  ".join(parts)


class Dialog(Protocol):
    """The other side of a held run. Called in the event loop, in turns: `answered`, `next`, `answered`, ..."""

    async def answered(self, answer: Answer) -> None:
        """Its text was handed to the view before. May wait for a slow reader; raises OutputGone when there is none."""

    async def next(self) -> Prompt | None:
        """Wait for a prompt that can be served; what cannot be is refused there and then. None: there is no other.

        Raises PpError when none can be asked for any more, OutputGone when nobody reads that one was refused.
        """

    def ask_again(self) -> None:
        """News came: where `next` awaits a prompt, show once more that it does."""
