"""One run over rented machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import RunFailed
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.options import RentalOptions


@dataclass(frozen=True, slots=True)
class RentalReport:
    """What was rented and what it cost: a dict an attempt in `instances`, the ones that failed included."""

    price_per_hour_usd: float
    spent_usd: float
    instances: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """The `rental` of the run's JSON."""
        return {
            "price_per_hour_usd": round(self.price_per_hour_usd, 4),
            "spent_usd": round(self.spent_usd, 4),
            "instances": list(self.instances),
        }


class RentedRun:
    """`execute` runs once and always returns a result. When it is back, everything rented is verified as destroyed, or
    the result's error is LeasesLeft (exit status 4), whatever else went wrong. It takes the ending signals over."""

    def __init__(self, options: RunOptions, renting: RentalOptions, view: View, client: VastApi) -> None:
        """`options.model` is one that nodes fetch their shares of, or the stub."""
        self._options = options
        self._renting = renting
        self._view = view
        self._client = client

    async def execute(self) -> RunResult:
        """Raises PlanInvalid and EnvironmentFault before anything was rented."""
        raise RunFailed("not there yet")

    @property
    def rental(self) -> RentalReport:
        """As of now; after `execute` the whole."""
        return RentalReport(0.0, 0.0, ())
