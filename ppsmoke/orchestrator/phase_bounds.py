"""How long each phase of a run may take, and which option says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ppsmoke.orchestrator.machine import Phase
from ppsmoke.orchestrator.options import Deadlines


@dataclass(frozen=True, slots=True)
class Bound:
    """`what` may take `seconds`, as `option` has it."""

    seconds: float
    what: str
    option: str


def phase_bound(phase: Phase, deadlines: Deadlines) -> Bound | None:
    """None for a phase without one. To provision the stages and to wait until they are ready have one together."""
    match phase:
        case Phase.PROVISIONING | Phase.WAITING_READY:
            return Bound(deadlines.ready, "preparing the stages", "--ready-timeout")
        case Phase.RUNNING:
            return Bound(deadlines.response, "the first token", "--response-timeout")
        case Phase.REDEPLOYING:
            return Bound(deadlines.stop + deadlines.kill, "restarting the stages", "--stop-timeout")
        case Phase.TEARING_DOWN:
            return Bound(deadlines.stop, "stopping", "--stop-timeout")
        case _:
            return None
