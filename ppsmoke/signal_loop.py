"""An event loop in which no signal is lost, up to its very end.

asyncio's own closes the pipe that signals wake it by before it lets go of the signals: one that comes in between is
reported by the interpreter as a failed write, with a traceback, and forgotten; one that comes just after it meets the
system's default instead of what was installed before the loop began.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


def run_with_signals(work: Coroutine[Any, Any, _Result]) -> _Result:
    """As asyncio.run, for work that takes signals over with the loop's `add_signal_handler`.

    Afterwards each has its former handler again. To that goes one that came when the work had ended: so it may raise
    here what that handler raises, in place of the result.
    """
    loops: list[_SignalLoop] = []

    def make() -> _SignalLoop:
        loops.append(_SignalLoop())
        return loops[0]

    try:
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(work)
    finally:
        for loop in loops:
            loop.hand_back()


def ignore_signals_afterwards() -> None:
    """For work that is run so, where something must be said first: once it has ended, the signals that it took over do
    nothing, until somebody takes them over again."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, _SignalLoop):
        loop.ignore_afterwards()


class _SignalLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._taken: set[int] = set()
        self._late: list[int] = []
        self._closing = False

    def add_signal_handler(self, sig: int, callback: Callable[[*_Arguments], object], *args: *_Arguments) -> None:
        self._taken.add(sig)
        super().add_signal_handler(sig, callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        # In closing it would put the system's default in place of ours.
        return False if self._closing else super().remove_signal_handler(sig)

    def ignore_afterwards(self) -> None:
        for number in self._taken:
            self._before[signal.Signals(number)] = lambda _number, _frame: None

    def close(self) -> None:
        if self._taken and not self.is_closed():
            for number in self._taken:
                signal.signal(number, self._keep)
            signal.set_wakeup_fd(-1)
            # Those that came before, and only woke it, still have its handlers.
            self.run_until_complete(asyncio.sleep(0))
            self._closing = True
        super().close()

    def hand_back(self) -> None:
        """Once it is closed: the former handlers, and to them what came too late for the loop's."""
        for number in self._taken:
            handler = self._before[signal.Signals(number)]
            if handler is not None:  # one that was not installed from Python cannot be put back
                signal.signal(number, handler)
        for number in self._late:
            signal.raise_signal(number)

    def _keep(self, number: int, _frame: object) -> None:
        self._late.append(number)
