"""The nodes of a run as child processes of this one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from ppsmoke.errors import PpError
from ppsmoke.files.code_folders import remove_code
from ppsmoke.membership import local_config, wan_config
from ppsmoke.orchestrator.children import LOST_US, Child, ChildNode
from ppsmoke.orchestrator.node_environment import node_environment
from ppsmoke.orchestrator.node_source import Network, NodeNews, Site
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.resources import ResourceBook
from ppsmoke.run_events import StageDoing, StagePlaced, StageState
from ppsmoke.transport.endpoint import by_relay_alone
from ppsmoke.wording import look_at_relay

_CHILD_END_S = 10.0

MakeChild = Callable[[int, Path], Child]


class LocalNodes:
    """A node source; see NodeSource."""

    def __init__(self, options: RunOptions, view: View, make_child: MakeChild = ChildNode) -> None:
        self._options = options
        self._view = view
        self._make_child = make_child
        self._book = ResourceBook()
        far = bool(options.relay_urls)
        self.network = Network(
            loopback_only=not far,
            relay_urls=options.relay_urls,
            relay_token=options.relay_token,
            membership=(wan_config if far else local_config)(options.deadlines.silence),
            remote=False,
        )
        self.children: list[Child] = []
        self._booted: set[int] = set()  # the stages whose nodes have given their address

    async def start(self, site: Site, news: NodeNews) -> None:
        """All at one time, each told its predecessor's address once it is known.

        Stage 0's too, since the edge from the last stage to the first must work with no relay to ask. Where there is
        one, nobody is told more than it, as on machines far from each other.
        """
        for index in range(self._options.num_stages):
            await self._start_node(index, site, news)
        await self._introduce(site)

    async def _introduce(self, site: Site) -> None:
        """Wait for every node's address, and tell it to those that need it."""
        tickets: list[str] = []
        for child in self.children:
            index = child.stage_index
            self._view.waiting(f"waiting for the address of stage {index}")
            if tickets and not self._options.relay_urls:
                child.tell_peers(list(dict.fromkeys([tickets[-1], tickets[0]])))
            tickets.append(await child.address(self._options.deadlines.boot))
            self._booted.add(index)
            self._view.happened(StageDoing(index, StageState.JOINING))
            self._view.detail(f"stage {index}: {site.node_name(index)}, pid {child.pid}")

    async def _start_node(self, index: int, site: Site, news: NodeNews) -> None:
        child = self._make_child(index, self._options.log_dir / f"stage-{index}.log")
        self.children.append(child)
        self._book.enter("process", f"of stage {index}", child.end, deadline_s=_CHILD_END_S)
        environment = node_environment(
            self._options,
            index,
            inherited=os.environ,
            seed_ticket=by_relay_alone(site.ticket) if self._options.relay_urls else site.ticket,
            node_key=site.node_key(index),
            join_token=site.join_token,
        )
        await child.start(environment)
        self._view.happened(StagePlaced(index, f"pid {child.pid}"))
        self._view.happened(
            StageDoing(index, StageState.STARTING, deadline_s=self._options.deadlines.boot),
        )
        child.exited.add_done_callback(partial(self._exited, child, news))

    async def replace(self, stages: Mapping[int, str]) -> bool:
        """A process that failed here would fail again."""
        return False

    def code_folder(self) -> str:
        return str(self._options.log_dir.absolute())

    async def restarted(self, site: Site) -> None:
        await self._introduce(site)

    def has_ended(self, stage: int) -> bool:
        return stage < len(self.children) and self.children[stage].exited.done()

    def log_tail(self, stage: int) -> list[str]:
        return self.children[stage].log_tail() if stage < len(self.children) else []

    def kill(self, stages: Iterable[int]) -> None:
        """SIGKILL to every process of these stages, without waiting."""
        for stage in stages:
            self.children[stage].kill()

    def interrupted(self, times: int, signal_name: str) -> None:
        """Twice means now: every process of the run is killed, and that is verified as always."""
        self._view.line(f"{signal_name} again: killing every process of the run")
        self.kill(range(len(self.children)))

    def describe(self) -> str:
        return f"{len(self.children)} stages"

    async def end(self, grace_s: float, why: PpError | None) -> None:
        """Let the nodes go, wait a while for them to end by themselves, kill the rest, verify that all is gone.

        A node that has not given its address yet is still loading and deaf to everything: it is killed at once.
        """
        for child in self.children:
            if child.stage_index in self._booted:
                child.let_go()
            else:
                child.kill()
        running = [child.exited for child in self.children if child.pid is not None and not child.exited.done()]
        if running and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        await self._book.end_all()
        remove_code(self._options.log_dir)

    def _exited(self, child: Child, news: NodeNews, exited: asyncio.Future[int]) -> None:
        if exited.cancelled():
            return
        error, relay_urls = child.death(), self._options.relay_urls
        if exited.result() == LOST_US and relay_urls:
            error.remedy = f"{look_at_relay(relay_urls)} {error.remedy}"
        news.node_ended(child.stage_index, error)
