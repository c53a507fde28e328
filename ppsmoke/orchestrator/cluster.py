"""The members of a run: the orchestrator's endpoint, mesh and membership, the plan, and the nodes that join."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ppsmoke import __version__
from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import LeftBehind, PeerLost, PpError, RunFailed
from ppsmoke.files.protocol import FILES_ALPN
from ppsmoke.files.service import FileService
from ppsmoke.membership import ENTRY_NAME, ORCHESTRATOR_NAME, Member, MemberRow, SwimMembership, stage_name
from ppsmoke.membership.api import OnPath
from ppsmoke.messages import CONTROL_CHANNEL, OrchestratorMessage, encode_message
from ppsmoke.orchestrator.node_source import NodeNews, NodeSource
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.plan import RunPlan, build_plan
from ppsmoke.request import model_plan
from ppsmoke.resources import ResourceBook
from ppsmoke.transport import Endpoint, Mesh, MeshEvents, Refused, node_id_of

_SEND_S = 5.0
_FAR_SEND_S = 15.0  # a dial over a relay may take ten of them
_JOIN_S = 5.0
_CLOSE_S = 2.0
_POLL_S = 0.05
_REPLACED = -1  # a stage that no node claims to be


class Cluster:
    """Everything that a run creates outside itself, entered in books; to its nodes it is the site they join.

    `member_changed` and `path_changed` are called in the event loop; `events` are the mesh's.
    """

    def __init__(
        self,
        options: RunOptions,
        nodes: NodeSource,
        *,
        events: MeshEvents,
        member_changed: Callable[[Member | None, Member], None],
        path_changed: OnPath,
    ) -> None:
        self._options = options
        self._events = events
        self._member_changed = member_changed
        self._path_changed = path_changed
        self._book = ResourceBook()
        self._key = secrets.token_bytes(32)
        self._own_id = node_id_of(self._key)
        self._node_keys = [secrets.token_bytes(32) for _ in range(options.num_stages)]
        self._planned: dict[str, int] = {}  # of every node that ever was in the plan; read by membership's thread
        self._endpoint: Endpoint | None = None
        self._files: FileService | None = None
        self._news_came = asyncio.Event()
        self.join_token = secrets.token_hex(32)
        options.redactor.keep(self._key, self.join_token, options.relay_token, *self._node_keys)
        self.nodes = nodes
        self.plan = self._make_plan()
        # Set by `spawn`.
        self.mesh: Mesh
        self.membership: SwimMembership
        self.acceptor: EdgeAcceptor

    def _make_plan(self) -> RunPlan:
        """The keys are drawn before the plan, so that it names every node by its id. Raises PlanInvalid."""
        options = self._options
        plan = build_plan(
            run_id=options.run_id,
            model=model_plan(options.model, options.context),
            generation=options.generation,
            orchestrator_id=self._own_id,
            node_ids=[node_id_of(key) for key in self._node_keys],
        )
        self._planned |= {stage.node_id: stage.stage_index for stage in plan.stages}
        return plan

    async def spawn(self, news: NodeNews) -> None:
        """Bind the endpoint, begin the membership, start the nodes."""
        network = self.nodes.network
        self._book.enter("endpoint", "of the orchestrator", self._close_mesh, deadline_s=_CLOSE_S * 2)
        self._endpoint = await Endpoint.bind(
            self._key,
            loopback_only=network.loopback_only,
            relay_urls=network.relay_urls,
            relay_token=network.relay_token,
            need_relay=True,
            further_alpns=(FILES_ALPN,) if self._offers_files else (),
        )
        self.mesh = Mesh(
            self._endpoint,
            run_id=self.plan.run_id,
            join_token=bytes.fromhex(self.join_token),
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
            config=network.membership,
            planned=self._planned,
            on_change=self._changed,
            on_path=self._path_changed,
        )
        self.acceptor = EdgeAcceptor(self.mesh)
        if self._offers_files:
            self._files = self._offer(network.files)
            self.mesh.services[FILES_ALPN] = self._files.serve
        self.mesh.start()
        self.membership.start()
        await self.membership.join(_JOIN_S)
        await self.membership.register(ORCHESTRATOR_NAME, _JOIN_S)
        await self.nodes.start(self, news)

    @property
    def _offers_files(self) -> bool:
        """Also of a held run, whose nodes may be sent new code."""
        return bool(self.nodes.network.files) or self._options.held_dir is not None

    def _offer(self, files: Mapping[str, Path]) -> FileService:
        token = bytes.fromhex(self.join_token)
        return FileService(files, run_id=self.run_id, join_token=token, own_id=self._own_id)

    # ---- the site that nodes join

    @property
    def run_id(self) -> str:
        return self.plan.run_id

    @property
    def ticket(self) -> str:
        assert self._endpoint is not None
        return self._endpoint.ticket()

    def node_key(self, stage: int) -> bytes:
        return self._node_keys[stage]

    def renew_node_key(self, stage: int) -> bytes:
        """See Site. The node that had the place before is no longer welcome."""
        replaced = self.plan.stages[stage].node_id
        self._node_keys[stage] = secrets.token_bytes(32)
        self._options.redactor.keep(self._node_keys[stage])
        self.plan = self._make_plan()
        self._planned[replaced] = _REPLACED
        if hasattr(self, "mesh"):
            self.mesh.spawn(self.mesh.drop(replaced, "another node has its place"), f"drop stage {stage}'s old node")
        return self._node_keys[stage]

    def offer(self, name: str, path: Path) -> None:
        """One file more that nodes may read of this machine. Raises ModelNotFound."""
        assert self._files is not None
        self._files.offer(name, path)

    def withdraw(self, name: str) -> None:
        """Nobody needs that file any more."""
        if self._files is not None:
            self._files.withdraw(name)

    def plan_again(self, keys: Sequence[bytes]) -> None:
        """A plan for other nodes, with these keys, in the place of all that were there. None of them lives any more."""
        former = [stage.node_id for stage in self.plan.stages]
        self._node_keys = list(keys)
        self.plan = self._make_plan()
        self._planned |= dict.fromkeys(former, _REPLACED)

    def node_name(self, stage: int) -> str:
        return f"node {self.plan.stages[stage].node_id[:8]}"

    # ---- who is there

    async def wait_joined(self) -> None:
        """Return when the name of every stage leads to its planned node."""
        while self.not_joined():
            self._news_came.clear()
            await self._news_came.wait()

    def not_joined(self) -> list[int]:
        """The stages whose planned nodes do not hold their names yet."""
        resolve = self.membership.resolve if hasattr(self, "membership") else lambda name: None
        return [s.stage_index for s in self.plan.stages if resolve(stage_name(s.stage_index)) != s.node_id]

    def planned_stage(self, node_id: str) -> int | None:
        """The stage that the plan gives to this node."""
        return next((stage.stage_index for stage in self.plan.stages if stage.node_id == node_id), None)

    def _changed(self, before: Member | None, after: Member) -> None:
        self._news_came.set()
        self._member_changed(before, after)

    async def wait_entry(self, deadline_s: float) -> None:
        """Return when the entry leads to stage 0, which says that the whole chain is ready."""
        ends = asyncio.get_running_loop().time() + deadline_s
        while True:
            found = await self.membership.wait_name(ENTRY_NAME, deadline_s=ends - asyncio.get_running_loop().time())
            if self._planned.get(found) != _REPLACED:
                break
            await asyncio.sleep(_POLL_S)  # it has left, and membership is about to hear of it
        if found != self.plan.stages[0].node_id:
            what = f"{ENTRY_NAME} is {self.name_of(found)}, not stage 0"
            raise RunFailed(what, stage=0, phase=f"resolve {ENTRY_NAME}")

    async def member_table(self) -> list[MemberRow]:
        """Every member, as of this call; nothing before the membership exists."""
        return await self.membership.table() if hasattr(self, "membership") else []

    async def tell(self, index: int, message: OrchestratorMessage) -> None:
        """Send one control message to a stage. Raises as Mesh.send does, PeerLost before there is a mesh."""
        if not hasattr(self, "mesh"):
            raise PeerLost(f"stage {index} cannot be told anything yet", stage=index)
        send_s = _SEND_S if self.nodes.network.loopback_only else _FAR_SEND_S
        await self.mesh.send(
            self.plan.stages[index].node_id, CONTROL_CHANNEL, encode_message(message), deadline_s=send_s
        )

    def name_of(self, node_id: str) -> str:
        stage = self._planned.get(node_id)
        if stage is not None:
            return f"stage {stage}" if stage != _REPLACED else f"replaced node {node_id[:8]}"
        return "orchestrator" if node_id == self._own_id else f"node {node_id[:8]}"

    # ---- the end

    async def end(self, grace_s: float, why: PpError | None) -> None:
        """End the nodes and the endpoint, and verify that all is gone. Raises LeftBehind, of all that is not.

        Children end before the endpoint they talk to. Nodes elsewhere hear the goodbye first: what is then left of them
        is their machines, whose end may take minutes.
        """
        steps = [lambda: self.nodes.end(grace_s, why), self._book.end_all]
        left: list[LeftBehind] = []
        for step in reversed(steps) if self.nodes.network.remote else steps:
            try:
                await step()
            except LeftBehind as error:
                left.append(error)
        if left:
            raise max(left, key=lambda error: error.exit_status)

    def _admit(self, node_id: str) -> Refused | None:
        planned = self.planned_stage(node_id) is not None
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
        if self._files is not None:
            self._files.close()
