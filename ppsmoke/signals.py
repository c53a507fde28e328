"""The signals that end a run, and the error each stands for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ppsmoke.errors import Interrupted

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interruption(number: int, phase: str | None = None) -> Interrupted:
    return Interrupted(f"interrupted by {signal.Signals(number).name}", signal_number=number, phase=phase)


def raise_on_signals() -> None:
    """From now on the ending signals raise Interrupted in the main thread; an event loop may take them over."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _raise)


@contextmanager
def signals_held() -> Iterator[None]:
    """An ending signal that comes inside raises at the end: for what must not stop half-way, as the start of a process
    that nobody would know of."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise interruption(came[0])


def _raise(number: int, _frame: FrameType | None) -> None:
    raise interruption(number)
