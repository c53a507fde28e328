"""The relays of a run, tried and shown, before anything depends on them."""

from __future__ import annotations

from collections.abc import Sequence

from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.relays.check import usable_relays
from ppsmoke.terminal import Terminal

_VALUE_BYTES = 4


async def choose_relays(
    given: Sequence[str],
    token: str,
    options: RunOptions,
    terminal: Terminal,
    *,
    otherwise: str,
    without: str = "the public ones of iroh's makers are used",
) -> tuple[str, ...]:
    """The addresses, nearest first, each shown with what it is worth. Raises as `usable_relays` does."""
    terminal.waiting("trying the relays")
    part_bytes = options.prefill_part * options.model.hidden_dim * _VALUE_BYTES
    try:
        answers = await usable_relays(given, token=token, part_bytes=part_bytes, otherwise=otherwise, without=without)
    finally:
        terminal.settle()
    for answer in answers:
        terminal.line(f"relay        {answer.describe()}")
    if not given:
        terminal.line("warning: these relays are public, shared and rate-limited; --relay-url names one of your own")
    return tuple(answer.url for answer in answers)
