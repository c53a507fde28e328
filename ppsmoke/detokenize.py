"""Text out of a stream of tokens, in whole UTF-8 characters."""

from __future__ import annotations

import codecs

from ppsmoke.tokenizer import Tokenizer


class StreamingDetokenizer:
    """Turns tokens into text as they come. All pieces joined equal `decode(all tokens, skip_special=True)`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that this token completes; "" for a special or stop token. UsageError for no such token."""
        if self._tokenizer.is_special(token):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left: U+FFFD for a character that never became whole, else ""."""
        return self._decoder.decode(b"", final=True)
