"""The value of --prompt: the prompt itself, or - for standard input."""

from __future__ import annotations

import os

from ppsmoke.errors import UsageError

_MOST_BYTES = 64 * 1024 * 1024
"""More than any context holds; without a bound an input that never ends would take all memory."""


def read_prompt_argument(prompt: str) -> str:
    """The prompt itself, or standard input for `-`. Raises UsageError for input that is no text, or endless."""
    if prompt != "-":
        return prompt
    try:
        # Piece by piece: Python acts on a signal between statements, and one long read would be a single one.
        pieces, size = [], 0
        while piece := os.read(0, 1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_BYTES:
                raise UsageError(
                    f"standard input has more than {_MOST_BYTES} bytes, which no context holds",
                    remedy="Give a shorter prompt.",
                )
        # The line's end that `echo` adds is no part of what the user asked.
        return b"".join(pieces).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror}", remedy="Give the prompt with --prompt TEXT."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 text: {error.reason} at byte {error.start}",
            remedy="Convert it first, as with iconv -t UTF-8.",
        ) from None
