"""Tokens become text, and the text goes to whoever reads it."""

from __future__ import annotations

from ppsmoke.orchestrator.options import View
from ppsmoke.request import Detokenizer


class TextStream:
    """`push` is immediate; `flush` waits for the reader. `text` is all there was so far."""

    def __init__(self, detokenizer: Detokenizer, view: View) -> None:
        self.text = ""
        self._detokenizer = detokenizer
        self._view = view
        self._pending = ""

    def push(self, token: int, *, last: bool) -> None:
        piece = self._detokenizer.push(token)
        if last:
            piece += self._detokenizer.finish()
        self.text += piece
        self._pending += piece

    async def flush(self) -> None:
        """Hand on what is new. Raises OutputGone when nobody reads it any more."""
        piece, self._pending = self._pending, ""
        if piece:
            await self._view.text(piece)
