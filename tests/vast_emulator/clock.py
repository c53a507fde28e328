"""The emulator's time: seconds of the service, which pass faster than real ones."""

from __future__ import annotations

import time


class ServiceClock:
    """`scale` 0.01 makes a hundred seconds of the service pass in one. `epoch` is what the service's clock shows."""

    def __init__(self, scale: float = 1.0, epoch: float | None = None) -> None:
        self.scale = scale
        self._began = time.monotonic()
        self._epoch = time.time() if epoch is None else epoch

    def now(self) -> float:
        """Seconds of the service since the emulator began."""
        return (time.monotonic() - self._began) / self.scale

    def date(self, moment: float) -> float:
        """The same moment as seconds since the epoch, as rows show it."""
        return self._epoch + moment
