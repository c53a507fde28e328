"""The nodes of a run as local processes, and the mesh and membership that join them to the orchestrator."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ppsmoke import __version__
from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import RunFailed
from ppsmoke.membership import (
    ENTRY_NAME,
    ORCHESTRATOR_NAME,
    Member,
    MemberRow,
    SwimMembership,
    local_config,
    stage_name,
)
from ppsmoke.messages import CONTROL_CHANNEL, ProvisionStage, StopRun, encode_message
from ppsmoke.orchestrator.children import Child, ChildNode
from ppsmoke.orchestrator.node_environment import node_environment
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.plan import RunPlan, build_plan
from ppsmoke.request import model_plan
from ppsmoke.resources import ResourceBook
from ppsmoke.transport import Endpoint, Mesh, MeshEvents, Refused, node_id_of

_SEND_S = 5.0
_JOIN_S = 5.0
_CLOSE_S = 2.0
_CHILD_END_S = 10.0

MakeChild = Callable[[int, Path], Child]


class Cluster:
    """Everything that a run creates outside itself, entered in one book.

    `child_ended` and `member_changed` are called in the event loop; `events` are the mesh's.
    """

    def __init__(
        self,
        options: RunOptions,
        view: View,
        *,
        events: MeshEvents,
        child_ended: Callable[[Child], None],
        member_changed: Callable[[Member | None, Member], None],
        make_child: MakeChild = ChildNode,
    ) -> None:
        self._options = options
        self._view = view
        self._events = events
        self._child_ended = child_ended
        self._member_changed = member_changed
        self._make_child = make_child
        self._book = ResourceBook()
        self._key = secrets.token_bytes(32)
        self._node_keys = [secrets.token_bytes(32) for _ in range(options.num_stages)]
        self._join_token = secrets.token_hex(32)
        self._endpoint: Endpoint | None = None
        self.children: list[Child] = []
        self.plan = self._make_plan()
        # Set by `spawn`.
        self.mesh: Mesh
        self.membership: SwimMembership
        self.acceptor: EdgeAcceptor

    def _make_plan(self) -> RunPlan:
        """The keys are drawn before the plan, so that it names every node by its id. Raises PlanInvalid."""
        options = self._options
        return build_plan(
            run_id=options.run_id,
            model=model_plan(options.model, options.context),
            generation=options.generation,
            orchestrator_id=node_id_of(self._key),
            node_ids=[node_id_of(key) for key in self._node_keys],
        )

    async def spawn(self) -> None:
        """Bind the endpoint and start the nodes: all at one time, each told its predecessor's address once it is known.

        Stage 0's too, since the edge from the last stage to the first must work with no relay to ask.
        """
        self._book.enter("endpoint", "of the orchestrator", self._close_mesh, deadline_s=_CLOSE_S * 2)
        self._endpoint = await Endpoint.bind(self._key, loopback_only=True)
        self.mesh = Mesh(
            self._endpoint,
            run_id=self.plan.run_id,
            join_token=bytes.fromhex(self._join_token),
            tool_version=__version__,
            name_of=self.name_of,
            admit=self._admit,
            events=self._events,
        )
        self.membership = SwimMembership(
            self.mesh,
            orchestrator_id=self.mesh.node_id,
            stage_index=None,
            stage_count=self._options.num_stages,
            config=local_config(self._options.deadlines.silence),
            planned={stage.node_id: stage.stage_index for stage in self.plan.stages},
            on_change=self._member_changed,
        )
        self.acceptor = EdgeAcceptor(self.mesh)
        self.mesh.start()
        self.membership.start()
        await self.membership.join(_JOIN_S)
        await self.membership.register(ORCHESTRATOR_NAME, _JOIN_S)
        for index in range(self._options.num_stages):
            await self._start_node(index, self._endpoint.ticket())
        tickets: list[str] = []
        for child in self.children:
            index = child.stage_index
            self._view.waiting(f"waiting for the address of stage {index}")
            if tickets:
                child.tell_peers(list(dict.fromkeys([tickets[-1], tickets[0]])))
            tickets.append(await child.address(self._options.deadlines.boot))
            self._view.detail(f"stage {index}: node {self.plan.stages[index].node_id[:8]}, pid {child.pid}")

    async def _start_node(self, index: int, seed_ticket: str) -> None:
        child = self._make_child(index, self._options.log_dir / f"stage-{index}.log")
        self.children.append(child)
        self._book.enter("process", f"of stage {index}", child.end, deadline_s=_CHILD_END_S)
        environment = node_environment(
            self._options,
            index,
            inherited=os.environ,
            seed_ticket=seed_ticket,
            node_key=self._node_keys[index],
            join_token=self._join_token,
        )
        await child.start(environment)
        child.exited.add_done_callback(partial(self._exited, child))

    def _exited(self, child: Child, exited: asyncio.Future[int]) -> None:
        if not exited.cancelled():
            self._child_ended(child)

    async def wait_joined(self, deadline_s: float) -> None:
        """Return when every stage is alive and its name leads to its planned node."""
        await self.membership.wait_alive(len(self.plan.stages), deadline_s)
        for index in range(len(self.plan.stages)):
            await self._expect_name(stage_name(index), index, deadline_s)

    async def wait_entry(self, deadline_s: float) -> None:
        """Return when the entry leads to stage 0, which says that the whole chain is ready."""
        await self._expect_name(ENTRY_NAME, 0, deadline_s)

    async def _expect_name(self, name: str, index: int, deadline_s: float) -> None:
        found = await self.membership.wait_name(name, deadline_s=deadline_s)
        if found != self.plan.stages[index].node_id:
            raise RunFailed(f"{name} is {self.name_of(found)}, not stage {index}", stage=index, phase=f"resolve {name}")

    def not_joined(self) -> list[int]:
        """The stages whose name nobody holds yet."""
        return [s.stage_index for s in self.plan.stages if self.membership.resolve(stage_name(s.stage_index)) is None]

    async def member_table(self) -> list[MemberRow]:
        """Every member, as of this call; nothing before the membership exists."""
        return await self.membership.table() if hasattr(self, "membership") else []

    async def tell(self, index: int, message: ProvisionStage | StopRun) -> None:
        """Send one control message to a stage. Raises as Mesh.send does."""
        await self.mesh.send(
            self.plan.stages[index].node_id, CONTROL_CHANNEL, encode_message(message), deadline_s=_SEND_S
        )

    def name_of(self, node_id: str) -> str:
        for stage in self.plan.stages:
            if stage.node_id == node_id:
                return f"stage {stage.stage_index}"
        return "orchestrator" if node_id == self.mesh.node_id else f"node {node_id[:8]}"

    def log_tail(self, index: int) -> list[str]:
        return self.children[index].log_tail() if index < len(self.children) else []

    def kill(self, indices: Iterable[int]) -> None:
        """SIGKILL to every process of these stages, without waiting."""
        for index in indices:
            self.children[index].kill()

    async def end(self, grace_s: float) -> None:
        """Let the nodes go, wait a while for them to end by themselves, kill the rest, verify that all is gone.

        Raises LeftBehind.
        """
        for child in self.children:
            child.let_go()
        running = [child.exited for child in self.children if child.pid is not None and not child.exited.done()]
        if running and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        await self._book.end_all()

    def _admit(self, node_id: str) -> Refused | None:
        planned = any(stage.node_id == node_id for stage in self.plan.stages)
        return None if planned else Refused("not_planned", "this node is not in the run's plan")

    async def _close_mesh(self) -> None:
        if self._endpoint is None:
            return
        if hasattr(self, "mesh"):
            if hasattr(self, "membership"):
                await self.membership.close()
            await self.mesh.close("the run is over", deadline_s=_CLOSE_S)
        else:
            await self._endpoint.close(_CLOSE_S)
