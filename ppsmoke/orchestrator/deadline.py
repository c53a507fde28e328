"""The one deadline that runs at a time: that of the current phase."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PhaseDeadline:
    """`passed(seconds, what, option)` is called in the event loop when an armed deadline passes."""

    def __init__(self, passed: Callable[[float, str, str], None]) -> None:
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._armed: tuple[float, str, str] = (0.0, "", "")

    def arm(self, seconds: float, what: str, option: str) -> None:
        """From now on `what` may take `seconds`; replaces the deadline before. `option` is the one that sets it."""
        self.disarm()
        self._armed = (seconds, what, option)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._passed, *self._armed)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def prolong(self, seconds: float) -> None:
        """Give the armed deadline, if there is one, so much more time."""
        if self._timer is not None:
            due = self._timer.when() + seconds
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(due, self._passed, *self._armed)
