"""What the run waits for while its stages are prepared, in one line that is kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.news import waiting_line
from ppsmoke.orchestrator.options import View

_PREPARING = (machine.Phase.PLANNING, machine.Phase.PROVISIONING, machine.Phase.WAITING_READY)


class WaitingNews:
    """`remote`: the stages are on rented machines, whose coming is worth a line too. `state` gives the run's state,
    `not_joined` the stages whose nodes are not members yet."""

    def __init__(
        self,
        view: View,
        *,
        remote: bool,
        state: Callable[[], machine.RunState],
        not_joined: Callable[[], list[int]],
    ) -> None:
        self._view = view
        self._remote = remote
        self._state = state
        self._not_joined = not_joined
        self._doing: dict[int, str] = {}
        self._budget_ends: float | None = None  # on the event loop's clock

    def stage_does(self, stage: int, doing: str) -> None:
        self._doing[stage] = doing
        self.show()

    def of(self, stages: Iterable[int]) -> str:
        """'waiting for stage 1: loading'"""
        return waiting_line(stages, self._doing, ())

    def show(self) -> None:
        state = self._state()
        match state.phase:
            case machine.Phase.WAITING_READY:
                text = waiting_line(state.stages_awaited, self._doing, state.awaited)
            case machine.Phase.PLANNING if self._remote:
                text = waiting_line(self._not_joined(), self._doing, ("all machines to be running",))
            case _:
                return
        if self._budget_ends is not None and self._remote:
            left_s = max(0.0, self._budget_ends - asyncio.get_running_loop().time())
            text = f"{left_s:.0f} s left, {text}"
        self._view.waiting(text)

    async def count_down(self, budget_ends: float) -> None:
        """Show what is left of the budget, until the stages are ready."""
        self._budget_ends = budget_ends
        while self._state().phase in _PREPARING:
            self.show()
            await asyncio.sleep(1.0)
