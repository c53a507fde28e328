"""The signals that end a run, and the error each stands for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ppsmoke.errors import Interrupted

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those to act upon: what `nohup`, or a shell that starts a background job, had ignored before us stays ignored.
    None outside the main thread, which alone may take signals over."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    return tuple(number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)


def signal_name(number: int) -> str:
    """SIGKILL for 9; 'signal 77' for one without a name of its own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(status: int) -> str:
    """How a process ended, by its exit status or its signal as a negative one: 'with exit status 7', 'by SIGKILL'."""
    return f"with exit status {status}" if status >= 0 else f"by {signal_name(-status)}"


def ending_remedy(status: int) -> str | None:
    """What to do about a worker that ended so; None where nothing is known."""
    match -status:
        case signal.SIGKILL:
            return "SIGKILL mostly means that the machine ran out of memory; free some, or use a smaller model."
        case signal.SIGBUS:
            return "SIGBUS mostly means that the model file was cut short or its disk failed; fetch it again."
        case _:
            return None


def interruption(number: int, phase: str | None = None) -> Interrupted:
    return Interrupted(f"interrupted by {signal_name(number)}", signal_number=number, phase=phase)


def raise_on_signals() -> None:
    """From now on the ending signals raise Interrupted in the main thread; an event loop may take them over."""
    for number in ending_signals():
        signal.signal(number, _raise)


def exit_on_signals(status: int = 0) -> None:
    """From now on an ending signal ends the process at once, with `status`, or its own in place of 0: what was begun
    has ended, only the report is left."""
    for number in ending_signals():
        signal.signal(number, lambda number, _frame: os._exit(status or interruption(number).exit_status))


def ignore_signals() -> None:
    """From now on an ending signal does nothing: for the moment in which what was left behind is named."""
    for number in ending_signals():
        signal.signal(number, lambda _number, _frame: None)


@contextmanager
def signals_held() -> Iterator[None]:
    """An ending signal that comes inside raises at the end: for what must not stop half-way, as the start of a process
    that nobody would know of. Outside the main thread there is nothing to hold: signals are not raised there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise interruption(came[0])


def _raise(number: int, _frame: FrameType | None) -> None:
    raise interruption(number)
