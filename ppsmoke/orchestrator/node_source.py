"""Where the nodes of a run come from: the one thing in which a local run and a rented one differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ppsmoke.errors import PpError
from ppsmoke.membership.swim import SwimConfig
from ppsmoke.run_events import StageState


@dataclass(frozen=True, slots=True)
class Network:
    """How the members of a run reach each other. `remote`: the nodes are on other machines, which the end of this
    process does not end. `files`: what they may read of this machine, by name."""

    loopback_only: bool
    relay_urls: tuple[str, ...]
    membership: SwimConfig
    remote: bool
    relay_token: str = field(default="", repr=False)
    files: Mapping[str, Path] = field(default_factory=dict)


class Site(Protocol):
    """What a node must be told to become a member of the run."""

    @property
    def run_id(self) -> str: ...

    @property
    def ticket(self) -> str:
        """The full address of the orchestrator."""

    @property
    def join_token(self) -> str: ...

    def node_key(self, stage: int) -> bytes:
        """The secret key of the node that the plan has for `stage`."""

    def renew_node_key(self, stage: int) -> bytes:
        """A fresh key for another node in its place; the plan is revised. Only before anything is provisioned."""

    def node_name(self, stage: int) -> str:
        """'node 12ab34cd'"""


class NodeNews(Protocol):
    """Whom a source tells what it learns by itself. Called in the event loop."""

    def node_ended(self, stage: int, error: PpError) -> None:
        """The stage's process or machine is known to be gone, or as good as gone."""

    def node_state(self, stage: int, doing: str, state: StageState = StageState.RENTING, *, anew: bool = False) -> None:
        """What the stage's machine does at the moment, for the user: 'pulling the image'; `anew`: it is another one."""

    def source_failed(self, error: PpError) -> None:
        """There will be no nodes, or none any more."""

    def renting_began(self) -> None:
        """From now on the run costs money, and the user's budget counts."""


class NodeSource(Protocol):
    """The nodes of one run, from their beginning to their verified end."""

    network: Network

    async def start(self, site: Site, news: NodeNews) -> None:
        """Return when every stage has a node that is about to join, or raise why not."""

    async def replace(self, stages: Mapping[int, str]) -> bool:
        """Give these stages other nodes; the values say why. False: there are no others. Raises as `start` does."""

    def code_folder(self) -> str:
        """Where nodes unpack new code; empty: each in its own place."""

    async def restarted(self, site: Site) -> None:
        """The nodes were told to restart with new code and the plan's new keys: do what they need to join again.

        Return when each is about to. Raises as `start` does.
        """

    def has_ended(self, stage: int) -> bool:
        """Whether nothing can be expected of the stage's node any more."""

    def log_tail(self, stage: int) -> list[str]: ...

    def kill(self, stages: Iterable[int]) -> None:
        """End the nodes of these stages by force, where that can be done without waiting."""

    def interrupted(self, times: int, signal_name: str) -> None:
        """The user asked for the end, for the second time or a later one: from now on only what matters is done."""

    def describe(self) -> str:
        """What there is to stop: '3 stages'."""

    async def end(self, grace_s: float, why: PpError | None) -> None:
        """Let the nodes end within `grace_s`, end them, verify that nothing is left. Raises LeftBehind."""
