"""What the stages tell, taken to the part of the run that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import MalformedRequest, PeerLost
from ppsmoke.messages import (
    ClockReply,
    CodeFetched,
    EdgeReport,
    EdgeResumed,
    PathReport,
    StageFault,
    StageMessage,
    StagePaused,
    StageProgress,
    StageReady,
    StageRecords,
    StageStopped,
)
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.cluster import Cluster
from ppsmoke.orchestrator.edge_news import EdgeNews
from ppsmoke.orchestrator.faults import Faults
from ppsmoke.orchestrator.happenings import Happenings
from ppsmoke.orchestrator.news import NotNews, stage_fault_error, stage_news
from ppsmoke.orchestrator.options import View
from ppsmoke.orchestrator.path_news import tell_resumed
from ppsmoke.orchestrator.pause import Pause
from ppsmoke.orchestrator.redeploy import Redeployments
from ppsmoke.orchestrator.result import StageTimes
from ppsmoke.orchestrator.stage_axis import StageAxis
from ppsmoke.orchestrator.waiting_news import WaitingNews
from ppsmoke.run_events import StageState


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMessages:
    """`times` are the result's, stage by stage; `dispatch` steps the run's machine."""

    view: View
    cluster: Cluster
    times: Sequence[StageTimes]
    happenings: Happenings
    waiting: WaitingNews
    axis: StageAxis
    edge_news: EdgeNews
    pause: Pause
    redeployments: Redeployments
    faults: Faults
    dispatch: Callable[[machine.Event], None]

    def take(self, node_id: str, body: Mapping[str, Any]) -> None:
        """One control message. What is no news is dropped; what is no message is a fault of its sender."""
        try:
            news = stage_news(self.cluster.plan, node_id, body)
        except NotNews as reason:
            self.view.detail(f"dropped from {self.cluster.name_of(node_id)}: {reason}")
            return
        except MalformedRequest as error:
            name = self.cluster.name_of(node_id)
            self.faults.take(PeerLost(f"{name} sent no proper control message: {error}"))
            return
        try:
            self._take(news)
        except NotNews as reason:
            self.view.detail(f"dropped from stage {news.stage_index}: {reason}")

    def _take(self, news: StageMessage) -> None:
        match news:
            case ClockReply():
                self.axis.replied(news)
            case StageRecords():
                self.axis.take(news)
            case StageProgress(phase=phase):
                self.view.detail(f"stage {news.stage_index}: {phase}")
                self.happenings.progress(news)
                self.waiting.stage_does(news.stage_index, phase)
            case EdgeResumed():
                tell_resumed(self.view, self.cluster.plan, news)
            case EdgeReport() | PathReport():
                self.edge_news.heard(news)
            case StageReady():
                self._stage_ready(news)
            case StagePaused():
                self.pause.heard(news.stage_index)
            case StageFault():
                fault = stage_fault_error(news, self.cluster.nodes.log_tail(news.stage_index))
                self.faults.of_stage(news.stage_index, fault)
            case CodeFetched():
                self.redeployments.fetched(news)
            case StageStopped():
                self.times[news.stage_index].stopped(news.timings)
                self.view.detail(f"stage {news.stage_index} stopped")
                self.happenings.stages_do((news.stage_index,), StageState.STOPPED)
                self.dispatch(machine.StageHasStopped(news.stage_index))

    def _stage_ready(self, news: StageReady) -> None:
        times = self.times[news.stage_index]
        times.became_ready(news.device, news.timings)
        self.view.line(times.describe())
        self.happenings.stage_ready(times)
        self.axis.stage_ready(news.stage_index)
        self.dispatch(machine.StageIsReady(news.stage_index))
        self.waiting.show()
