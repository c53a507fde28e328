"""Who is in the run, where, under which names: the records and what every form of membership offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

CHANNEL = "membership"
ENTRY_NAME = "pp-entry"
EXIT_NAME = "pp-exit"
ORCHESTRATOR_NAME = "pp-orchestrator"

MemberState = Literal["alive", "left", "dead"]


def stage_name(stage_index: int) -> str:
    """The name of a stage's endpoint."""
    return f"pp-stage-{stage_index}"


@dataclass(frozen=True, slots=True)
class Member:
    """`ticket` is the full address, enough to dial it. `reason` says why it is no longer alive; its names are free."""

    node_id: str
    state: MemberState
    ticket: str
    stage_index: int | None = None
    names: frozenset[str] = frozenset()
    reason: str = ""


OnChange = Callable[[Member | None, Member], None]
"""Called in the event loop with the record before (None: new) and after."""


class Membership(Protocol):
    def members(self) -> Mapping[str, Member]:
        """Every record known, one's own included, by node id."""

    def resolve(self, name: str) -> str | None:
        """The node id of the alive member that holds `name`."""

    async def register(self, name: str, deadline_s: float) -> None:
        """Take `name`, and return when it is known to be ours.

        Raises JoinRefused with the reason when it is not free or not ours to take, DeadlineExceeded, PeerLost.
        """

    async def wait_alive(self, count: int, deadline_s: float) -> None:
        """Return when `count` members other than oneself are alive. Raises DeadlineExceeded, PeerLost."""

    async def wait_name(self, name: str, deadline_s: float) -> str:
        """The node id of the alive member that holds `name`, waiting for one. Raises DeadlineExceeded, PeerLost."""
