"""When a failure is reported: a moment later, where that makes the report better."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ppsmoke.errors import EdgeFaulted, PeerLost, PpError

_ROOT_CAUSE_S = 0.5
_IN_FLIGHT_S = 0.25


class FaultDelay:
    """`report` is called in the event loop, once for a run of failures that belong together.

    A broken link or edge is mostly the shadow of a death: the news of that death names the stage that died and not
    its neighbour. And tokens that were computed before a stage failed may still be on their way.
    """

    def __init__(self, report: Callable[[PpError], None]) -> None:
        self._report = report
        self._timer: asyncio.TimerHandle | None = None
        self._is_shadow = False

    def take(self, error: PpError, *, running: bool, verdict: bool = False) -> None:
        """`running`: tokens may be on their way. `verdict`: it is the news of a death itself."""
        shadow = isinstance(error, PeerLost | EdgeFaulted) and not verdict
        if self._timer is not None:
            if shadow or not self._is_shadow:
                return  # the first reason stands, but for a shadow, which gives way to its cause
            self._timer.cancel()
        if not shadow and not running:
            self._report(error)
            return
        self._is_shadow = shadow
        wait_s = _ROOT_CAUSE_S if shadow else _IN_FLIGHT_S
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._report, error)
