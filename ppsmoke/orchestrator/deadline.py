"""The one deadline that runs at a time: that of the current phase."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PhaseDeadline:
    """`passed(seconds, what, option)` is called in the event loop when an armed deadline passes."""

    def __init__(self, passed: Callable[[float, str, str], None]) -> None:
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, seconds: float, what: str, option: str) -> None:
        """From now on `what` may take `seconds`; replaces the deadline before. `option` is the one that sets it."""
        self.disarm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._passed, seconds, what, option)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
