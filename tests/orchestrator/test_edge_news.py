"""What a run says of its ways."""

from __future__ import annotations

from typing import Any

from ppsmoke.messages import ORCHESTRATOR_TARGET, EdgeReport, PathReport
from ppsmoke.orchestrator.edge_news import EdgeNews
from ppsmoke.run_events import EdgeMeasured, PathChanged, RunEvent

RUN: dict[str, Any] = {"run_id": "ab" * 16, "node_id": "cd" * 32}


class Seen:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.details: list[str] = []
        self.events: list[RunEvent] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def detail(self, text: str) -> None:
        self.details.append(text)

    def happened(self, event: RunEvent) -> None:
        self.events.append(event)

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None: ...


def report(stage: int, target: int, **more: Any) -> EdgeReport:
    way = {"path": "direct", "round_trip_s": 0.01, "bytes_per_s": 1e6, "probe_bytes": 1000}
    return EdgeReport(**RUN, stage_index=stage, target=target, **{**way, **more})


def test_what_stages_measured_becomes_events_a_table_and_a_warning() -> None:
    seen = Seen()
    news = EdgeNews(seen, show=True)
    news.heard(report(0, 1))
    news.heard(report(2, ORCHESTRATOR_TARGET, bytes_per_s=0.0, probe_bytes=0))
    news.heard(report(1, 2, path="relay"))
    assert seen.events == [
        EdgeMeasured(0, 1, "direct", 0.01, 1e6, 1000),
        EdgeMeasured(2, None, "direct", 0.01, None, 0),
        EdgeMeasured(1, 2, "relay", 0.01, 1e6, 1000, "goes over a relay although others are direct"),
    ]
    assert seen.lines == []
    news.show()
    news.show()
    assert [line.split("  ")[0] for line in seen.lines] == [
        "way                    ".strip(),
        "stage 0 -> stage 1",
        "stage 1 -> stage 2",
        "stage 2 -> orchestrator",
        "warning: stage 1 -> stage 2 goes over a relay although others are direct",
    ]
    assert [(edge.source, edge.target) for edge in news.edges] == [(0, 1), (1, 2), (2, None)]


def test_where_the_table_is_no_news_the_warning_is() -> None:
    seen = Seen()
    news = EdgeNews(seen, show=False)
    news.heard(report(0, 1, round_trip_s=0.9))
    news.show()
    assert seen.lines == ["warning: stage 0 -> stage 1 has a round trip of 900 ms, more than 250 ms"]
    assert len(seen.details) == 2


def test_a_change_is_a_line_once_the_chain_is_ready() -> None:
    seen = Seen()
    news = EdgeNews(seen, show=True)
    news.changed(None, 1, "relay", "direct")
    assert seen.lines == []
    news.show()
    news.heard(PathReport(**RUN, stage_index=1, target=2, before="direct", after="relay"))
    assert seen.lines[-1] == "stage 1 -> stage 2: direct -> relay"
    assert seen.events == [PathChanged(None, 1, "relay", "direct"), PathChanged(1, 2, "direct", "relay")]


def test_the_last_known_way_to_a_stage_counts() -> None:
    news = EdgeNews(Seen(), show=True)
    news.heard(report(0, 1, path="relay"))
    assert not news.relayed(1), "that is another's way to it"
    news.changed(None, 1, "direct", "relay")
    assert news.relayed(1)
    news.changed(None, 1, "relay", "direct")
    assert not news.relayed(1)


def test_a_way_that_could_not_be_measured_is_said_and_is_in_no_table() -> None:
    seen = Seen()
    news = EdgeNews(seen, show=True)
    news.heard(report(1, 2, trouble="no link to stage 2 within 15 s"))
    assert seen.lines == ["warning: stage 1 -> stage 2 could not be measured: no link to stage 2 within 15 s"]
    assert news.edges == []
