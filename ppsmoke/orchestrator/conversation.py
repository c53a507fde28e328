"""The request that is being served: its text as it comes, and, with a held run, the prompts that follow it."""

from __future__ import annotations

import secrets
import time

from ppsmoke.objects import FinishReason
from ppsmoke.orchestrator.hold import Answer, Dialog, Prompt
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.text_stream import TextStream
from ppsmoke.orchestrator.token_ends import Request
from ppsmoke.run_events import TokenArrived


class Conversation:
    """`result` is kept up to date about the newest request. `handing_over`: an answer is whole and its reader has not
    taken it."""

    def __init__(self, options: RunOptions, view: View, result: RunResult, hold: Dialog | None) -> None:
        self._options = options
        self._view = view
        self._result = result
        self._hold = hold
        self._text = self._new_text()
        self.request = Request(secrets.token_hex(16), options.prompt_tokens)
        self.handing_over = False

    @property
    def held(self) -> bool:
        return self._hold is not None

    @property
    def text(self) -> str:
        return self._text.text

    def take_token(self, token: int, finish_reason: FinishReason | None) -> None:
        """The next token of the request; its text is shown by `flush`."""
        arrived = self._result.times.tokens_at
        if not arrived:
            self._view.settle()
        arrived.append(time.monotonic())
        self._text.push(token, last=finish_reason is not None)
        self._view.happened(TokenArrived(self.request.id, len(arrived) - 1, token, finish_reason))

    async def flush(self) -> None:
        """Hand on what is new of the text. Raises OutputGone when nobody reads it any more."""
        await self._text.flush()

    async def hand_over(self, tokens: tuple[int, ...], finish_reason: FinishReason | None) -> None:
        """Give the whole answer to who gave the prompt; without a reason there is none. Raises OutputGone."""
        assert self._hold is not None
        times = self._result.times
        if finish_reason is not None:
            await self._hold.answered(
                Answer(
                    prompt_tokens=len(self.request.prompt),
                    tokens=tokens,
                    text=self.text,
                    finish_reason=finish_reason,
                    ttft_s=times.first_token or 0.0,
                    decode_tok_s=times.decode_tok_s(),
                )
            )
        self.handing_over = False

    async def next_prompt(self) -> Prompt | None:
        """Wait for another prompt, as long as it takes. Raises as Dialog.next does."""
        assert self._hold is not None
        return await self._hold.next()

    def ask_again(self) -> None:
        """News came while a prompt may have been awaited."""
        if self._hold is not None:
            self._hold.ask_again()

    def begin(self, prompt: Prompt) -> None:
        """This prompt's request is the one that is served from now on."""
        self.request = Request(secrets.token_hex(16), prompt.tokens)
        self._text = self._new_text()
        self._result.prompt_tokens = len(prompt.tokens)
        self._result.times.tokens_at = []

    def _new_text(self) -> TextStream:
        return TextStream(self._options.model.detokenizer(), self._view)
