"""Who is in the run, where, under which names: the records and what every form of membership offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from ppsmoke.paths.watch import PathKind
from ppsmoke.wording import member_name

ENTRY_NAME = "pp-entry"
EXIT_NAME = "pp-exit"
ORCHESTRATOR_NAME = "pp-orchestrator"

MemberState = Literal["alive", "suspect", "dead", "left"]


def stage_name(stage_index: int) -> str:
    """The name of a stage's endpoint."""
    return f"pp-stage-{stage_index}"


@dataclass(frozen=True, slots=True)
class Member:
    """`ticket` is the full address, enough to dial it. `reason` says why it is not alive; the names of one that is dead
    or left are free. `incarnation`: how often it has contradicted what was said of it."""

    node_id: str
    state: MemberState
    ticket: str
    stage_index: int | None = None
    names: frozenset[str] = frozenset()
    reason: str = ""
    incarnation: int = 0


OnChange = Callable[[Member | None, Member], None]
"""Called in the event loop with the record before (None: new) and after."""

OnPath = Callable[[str, PathKind, PathKind], None]
"""Called in the event loop with a node id and the way that the link to it took before and takes now."""


class Membership(Protocol):
    def members(self) -> Mapping[str, Member]:
        """Every record known, one's own included, by node id."""

    def resolve(self, name: str) -> str | None:
        """The node id of the member that holds `name`; one that is suspect holds it still."""

    async def register(self, name: str, deadline_s: float) -> None:
        """Take `name`; returns when our own table says so, the others follow.

        Raises JoinRefused with the reason when it is not ours to take, DeadlineExceeded while another one holds it.
        """

    async def wait_alive(self, count: int, deadline_s: float) -> None:
        """Return when `count` members other than oneself are alive. Raises DeadlineExceeded, PeerLost."""

    async def wait_name(self, name: str, deadline_s: float) -> str:
        """The node id of the member that holds `name`, waiting for one. Raises DeadlineExceeded, PeerLost."""


def describe_member(member: Member) -> str:
    """'stage 2 [12ab34cd]: suspect (no answer), names pp-stage-2'"""
    names = f", names {', '.join(sorted(member.names))}" if member.names else ""
    why = f" ({member.reason})" if member.reason else ""
    return f"{member_name(member.stage_index)} [{member.node_id[:8]}]: {member.state}{why}{names}"
