"""Yes or no from the person at the terminal. The question goes to standard error: standard output is for results."""

from __future__ import annotations

import sys
from contextlib import suppress


def can_ask() -> bool:
    """Whether somebody reads the question and may answer."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:  # closed
        return False


def ask(question: str) -> bool:
    """Whether the answer is yes; anything else, an end of the input included, is a no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    except (OSError, UnicodeDecodeError):
        pass
    finally:  # a signal may end the wait, too: what is said next gets a line of its own
        if not answer.endswith("\n"):
            with suppress(OSError):
                print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")
