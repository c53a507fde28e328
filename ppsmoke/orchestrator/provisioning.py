"""The chain's preparation: every stage's part of the plan, and the run's own ends of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ppsmoke.errors import EdgeFaulted, PpError
from ppsmoke.messages import EdgeKind
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.edge_news import EdgeNews
from ppsmoke.orchestrator.options import RunOptions, View
from ppsmoke.orchestrator.path_news import tell_outage
from ppsmoke.orchestrator.token_ends import TokenEnds
from ppsmoke.paths.probe import MAX_PROBE_BYTES
from ppsmoke.paths.warm_up import MAX_WARM_UP_BYTES, warm_up_bytes
from ppsmoke.plan import provision_stage


class Provisioning:
    """`dispatch` steps the run's machine; what `spawn` runs and what `fault` gets may end the run."""

    def __init__(
        self,
        options: RunOptions,
        view: View,
        cluster: Cluster,
        edge_news: EdgeNews,
        *,
        dispatch: Callable[[machine.Event], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        fault: Callable[[PpError], None],
    ) -> None:
        self._options = options
        self._view = view
        self._cluster = cluster
        self._edge_news = edge_news
        self._dispatch = dispatch
        self._spawn = spawn
        self._fault = fault
        self.ends: TokenEnds | None = None

    async def provision(self) -> TokenEnds | None:
        """Tell every stage its part and begin to open our ends, `ends` from now on. None: the run ended meanwhile."""
        cluster, options = self._cluster, self._options
        self.ends = ends = TokenEnds(
            cluster.mesh,
            cluster.acceptor,
            cluster.plan,
            prefill_part=options.prefill_part,
            resume_s=options.deadlines.silence,
        )
        token_in = cluster.plan.edge_of_kind(EdgeKind.TOKEN_IN)
        ends.producer.on_resumed = lambda outage: tell_outage(self._view, token_in, outage)
        indices = [stage.stage_index for stage in cluster.plan.stages]
        sizes = {"probe_bytes": self._probe_bytes(), "warm_up_bytes": self._warm_up_bytes()}
        provisions = [provision_stage(cluster.plan, index).replace(**sizes) for index in indices]
        await asyncio.gather(*(cluster.tell(index, message) for index, message in enumerate(provisions)))
        if self.ends is not ends:
            return None
        self._spawn(self._open_token_in(ends))
        self._spawn(self._find_entry())
        return ends

    async def close(self, reason: str) -> None:
        """End our ends, if there are any."""
        ends, self.ends = self.ends, None
        if ends is not None:
            await ends.close(reason)
        self._dispatch(machine.TokenEndsClosed())

    async def _open_token_in(self, ends: TokenEnds) -> None:
        nodes = [stage.node_id for stage in self._cluster.plan.stages]
        measuring = self._edge_news.measure(self._cluster.mesh, nodes, self._probe_bytes())
        await asyncio.gather(ends.producer.open(self._options.deadlines.ready), measuring)
        ends.producer.faulted.add_done_callback(partial(self._edge_faulted, ends))
        self._dispatch(machine.ConditionMet(machine.Condition.TOKEN_PRODUCER))

    def _edge_faulted(self, ends: TokenEnds, faulted: asyncio.Future[EdgeFaulted]) -> None:
        if not faulted.cancelled() and ends is self.ends:
            self._fault(faulted.result())

    async def _find_entry(self) -> None:
        await self._cluster.wait_entry(self._options.deadlines.ready)
        self._dispatch(machine.ConditionMet(machine.Condition.ENTRY))

    def _probe_bytes(self) -> int:
        """What one part of a prompt has between two stages; nothing where no network is between them."""
        if self._cluster.nodes.network.loopback_only:
            return 0
        model = self._cluster.plan.model
        return min(MAX_PROBE_BYTES, self._options.prefill_part * model.hidden_dim * model.dtype_width_bytes)

    def _warm_up_bytes(self) -> int:
        """What makes room for the whole prompt, or for those to come; nothing where no network is between stages."""
        if self._cluster.nodes.network.loopback_only:
            return 0
        if self._options.held_dir is not None:
            return MAX_WARM_UP_BYTES
        model = self._cluster.plan.model
        return warm_up_bytes(len(self._options.prompt_tokens) * model.hidden_dim * model.dtype_width_bytes)
