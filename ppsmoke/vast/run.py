"""One run over rented machines: the chain's run, with machines for its nodes, and what they came to cost."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ppsmoke.bundle.names import RENTAL
from ppsmoke.orchestrator.hold import Dialog
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import ChainRun
from ppsmoke.vast.client import VastApi
from ppsmoke.vast.options import RentalOptions
from ppsmoke.vast.prices import price_per_hour_usd
from ppsmoke.vast.rented_nodes import RentedNodes


@dataclass(frozen=True, slots=True)
class RentalReport:
    """What was rented and what it cost: a dict an attempt in `instances`, the ones that failed included.

    `price_per_hour_usd`: of the offers that were chosen, together.
    """

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
    the result's `left_behind` is LeasesLeft and its exit status 4, whatever else went wrong. It takes the ending
    signals over."""

    def __init__(
        self,
        options: RunOptions,
        renting: RentalOptions,
        view: View,
        client: VastApi,
        *,
        hold: Dialog | None = None,
    ) -> None:
        """`options.model` is one that nodes fetch their shares of (`nodes_fetch`), or the stub; `hold` as ChainRun has
        it."""
        self._options = options
        self._renting = renting
        self._nodes = RentedNodes(options, renting, view, client)
        self._run = ChainRun(options, view, self._nodes, hold)

    async def execute(self) -> RunResult:
        """Raises PlanInvalid before anything was rented. `rental.json` in the log directory says what was."""
        try:
            result = await self._run.execute()
        finally:
            self._keep_report()
            self._nodes.remember(formed=self._run.result.times.join is not None)
        error = result.error
        if error is not None and error.stage is not None and not error.log_tail:
            error.log_tail = tuple(self._nodes.log_tail(error.stage))
        return result

    @property
    def rental(self) -> RentalReport:
        """As of now; after `execute` the whole."""
        state = self._nodes.state
        instances = tuple(
            {
                "id": instance_id,
                "stage": lease.stage,
                "label": lease.label,
                "machine_id": lease.candidate.machine_id,
                "host_id": lease.candidate.host_id,
                "price_per_hour_usd": lease.candidate.price_per_hour,
                "state": lease.standing.value,
                "reason": lease.reason or None,
            }
            for lease in (state.leases if state is not None else ())
            for instance_id in (lease.ids or (None,))
        )
        return RentalReport(price_per_hour_usd(self._renting.offers), self._nodes.spent_usd, instances)

    def _keep_report(self) -> None:
        with suppress(OSError):
            path = self._options.log_dir / RENTAL
            rental = self._options.redactor.clean_json(self.rental.as_json())
            path.write_text(json.dumps(rental, indent=1) + "\n")
