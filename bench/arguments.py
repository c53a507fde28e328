"""Values of the benches' options."""

from __future__ import annotations

import argparse


def numbers(text: str) -> tuple[int, ...]:
    """'2,5'. Raises ArgumentTypeError."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 2,5") from None
