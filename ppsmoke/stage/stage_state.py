"""What a stage's machine keeps between two events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ppsmoke.messages import ProvisionStage
from ppsmoke.roles import Role, role_of


class Phase(StrEnum):
    UNPROVISIONED = "Unprovisioned"
    PREPARING = "Preparing"
    READY = "Ready"
    EXECUTING = "Executing"
    FAULTED = "Faulted"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Handle:
    """A loaded input object, without its bytes. `done`: it only says that the request is over.

    `sequence` is the step the object starts; token s on a Feedback edge starts step s + 1.
    """

    edge_id: int
    request_id: str
    sequence: int
    part: int
    last_part: bool
    done: bool = False

    def describe(self) -> str:
        return f"sequence {self.sequence} part {self.part} of request {self.request_id[:8]}"


@dataclass(frozen=True, slots=True)
class Place:
    """The next object a stage will execute. `over`: its request ended, nothing more of it is due."""

    request_id: str | None = None
    sequence: int = 0
    part: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class StageState:
    """`expected_run_id` is the run the node was started for: a fault before provisioning is reported under it."""

    stage_index: int
    stage_count: int
    node_id: str
    orchestrator_id: str
    expected_run_id: str
    phase: Phase = Phase.UNPROVISIONED
    provision: ProvisionStage | None = None
    waiting_for: frozenset[int | str] = frozenset()
    loaded: tuple[Handle, ...] = ()
    executing: Handle | None = None
    next: Place = Place()
    fault: str | None = None
    ended_runs: frozenset[str] = frozenset()
    ended_requests: frozenset[str] = frozenset()

    @property
    def role(self) -> Role:
        return role_of(self.stage_index, self.stage_count)

    @property
    def run_id(self) -> str:
        return self.provision.run_id if self.provision else self.expected_run_id


def moved(state: StageState, phase: Phase, executing: Handle | None, following: Place) -> StageState:
    """`replace` for the two moves of every step, at a third of its cost."""
    return StageState(
        state.stage_index,
        state.stage_count,
        state.node_id,
        state.orchestrator_id,
        state.expected_run_id,
        phase,
        state.provision,
        state.waiting_for,
        state.loaded,
        executing,
        following,
        state.fault,
        state.ended_runs,
        state.ended_requests,
    )
