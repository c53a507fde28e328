"""What a run knows and says of the ways between its members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ppsmoke.errors import PpError
from ppsmoke.messages import ORCHESTRATOR_TARGET, EdgeReport, PathReport
from ppsmoke.orchestrator.options import View
from ppsmoke.paths.probe import MEASURE_S, measure
from ppsmoke.paths.quality import edge_lines, edge_name, judged, warning_line
from ppsmoke.paths.watch import PathKind
from ppsmoke.run_events import EdgeMeasured, PathChanged
from ppsmoke.transport import Mesh


class EdgeNews:
    """`show`: the table is news for the terminal; else a detail for --debug. Warnings are news anyhow."""

    def __init__(self, view: View, *, show: bool) -> None:
        self._view = view
        self._say = view.line if show else view.detail
        self._edges: dict[tuple[int | None, int | None], EdgeMeasured] = {}
        self._kinds: dict[tuple[int | None, int | None], PathKind] = {}
        self._shown = False

    @property
    def edges(self) -> list[EdgeMeasured]:
        """All that were measured, in order, with their warnings."""
        return judged(self._edges.values())

    def relayed(self, stage: int) -> bool:
        """Whether the way from here to the stage goes over a relay, as far as is known."""
        return self._kinds.get((None, stage)) == "relay"

    async def measure(self, mesh: Mesh, nodes: Sequence[str], probe_bytes: int) -> None:
        """From here to every stage's node. Never raises, and takes a bounded time."""
        await asyncio.gather(*(self._measure(mesh, node, stage, probe_bytes) for stage, node in enumerate(nodes)))

    async def _measure(self, mesh: Mesh, node: str, stage: int, probe_bytes: int) -> None:
        try:
            way = await measure(mesh, node, probe_bytes, MEASURE_S)
        except PpError as error:
            self._failed(None, stage, str(error))
            return
        self._measured(EdgeMeasured(None, stage, way.path, way.round_trip_s, way.bytes_per_s, way.probe_bytes))

    def heard(self, news: EdgeReport | PathReport) -> None:
        """From a stage, about a way that begins there."""
        target = None if news.target == ORCHESTRATOR_TARGET else news.target
        if isinstance(news, PathReport):
            self.changed(news.stage_index, target, news.before, news.after)
        elif news.trouble:
            self._failed(news.stage_index, target, news.trouble)
        else:
            sent = news.bytes_per_s if news.probe_bytes else None
            self._measured(EdgeMeasured(news.stage_index, target, news.path, news.round_trip_s, sent, news.probe_bytes))

    def changed(self, source: int | None, target: int | None, before: PathKind, after: PathKind) -> None:
        """The link goes another way now. While the chain is built that is what is hoped for, and a detail."""
        self._kinds[source, target] = after
        self._view.happened(PathChanged(source, target, before, after))
        say = self._view.line if self._shown else self._view.detail
        say(f"{edge_name(source, target)}: {before} -> {after}")

    def show(self) -> None:
        """The table, and a warning for each bad way; once, when the chain is ready."""
        if self._shown:
            return
        self._shown = True
        edges = self.edges
        for line in edge_lines(edges) if edges else ():
            self._say(line)
        for edge in edges:
            if edge.warning:
                self._view.line(warning_line(edge))

    def _measured(self, edge: EdgeMeasured) -> None:
        self._edges[edge.source, edge.target] = edge
        self._kinds[edge.source, edge.target] = edge.path
        self._view.happened(next(e for e in self.edges if (e.source, e.target) == (edge.source, edge.target)))

    def _failed(self, source: int | None, target: int | None, why: str) -> None:
        self._view.line(f"warning: {edge_name(source, target)} could not be measured: {why}")
