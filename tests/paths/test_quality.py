"""Which edges a run warns of, and how it shows them."""

from __future__ import annotations

from typing import Any

import pytest

from ppsmoke.paths.quality import edge_lines, edges_json, judged, warning_line
from ppsmoke.run_events import EdgeMeasured

GOOD: dict[str, Any] = {"path": "direct", "round_trip_s": 0.02, "bytes_per_s": 1e7, "probe_bytes": 100_000}


def edge(source: int | None, target: int | None, **other: Any) -> EdgeMeasured:
    return EdgeMeasured(source, target, **{**GOOD, **other})


def warnings(*edges: EdgeMeasured) -> list[str]:
    return [edge.warning for edge in judged(edges)]


def test_good_edges_are_not_warned_of() -> None:
    assert warnings(edge(None, 0), edge(0, 1), edge(1, 0), edge(1, None)) == [""] * 4


def test_a_relayed_edge_is_bad_where_another_is_direct_and_usual_where_none_is() -> None:
    assert warnings(edge(0, 1), edge(1, 2, path="relay")) == ["", "goes over a relay although others are direct"]
    assert warnings(edge(0, 1, path="relay"), edge(1, 0, path="relay")) == ["", ""]


def test_that_the_orchestrator_is_behind_a_relay_is_no_fault_of_the_chain() -> None:
    assert warnings(edge(None, 0, path="relay"), edge(0, 1), edge(1, None, path="relay")) == [""] * 3
    assert warnings(edge(None, 0), edge(0, 1, path="relay")) == [""] * 2


@pytest.mark.parametrize(("round_trip_s", "bad"), [(0.25, False), (0.2501, True)])
def test_a_long_round_trip_is_bad_on_any_edge(round_trip_s: float, bad: bool) -> None:
    for ends in ((0, 1), (None, 0)):
        (said,) = warnings(edge(*ends, round_trip_s=round_trip_s))
        assert said == ("has a round trip of 250 ms, more than 250 ms" if bad else "")


@pytest.mark.parametrize(("bytes_per_s", "bad"), [(100_000, False), (50_000, True)])
def test_an_edge_is_bad_that_takes_long_for_a_part_of_a_prompt(bytes_per_s: float, bad: bool) -> None:
    (said,) = warnings(edge(0, 1, bytes_per_s=bytes_per_s))
    assert said == ("takes 2.0 s for one part of a prompt, more than 1 s" if bad else "")
    assert warnings(edge(1, None, bytes_per_s=bytes_per_s)) == [""], "tokens are small"


def test_of_an_edge_that_is_slow_in_both_ways_both_are_said() -> None:
    (said,) = warnings(edge(0, 1, round_trip_s=0.3, bytes_per_s=50_000))
    assert said == (
        "has a round trip of 300 ms, more than 250 ms, and takes 2.0 s for one part of a prompt, more than 1 s"
    )


def test_the_table_is_in_the_order_of_the_chain_and_names_every_way() -> None:
    edges = judged([edge(1, None), edge(0, 1, bytes_per_s=None), edge(None, 0, round_trip_s=None)])
    lines = edge_lines(edges)
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "orchestrator -> stage 0",
        "stage 0 -> stage 1",
        "stage 1 -> orchestrator",
    ]
    assert lines[2].split()[-4:] == ["direct", "20", "ms", "-"]
    assert lines[3].endswith("10 MB/s")
    assert max(len(line) for line in lines) <= 80


def test_the_json_has_every_edge_and_the_line_names_the_stages() -> None:
    (bad,) = judged([edge(3, 4, round_trip_s=0.5123456789)])
    assert edges_json([bad]) == [
        {
            "source": 3,
            "target": 4,
            "path": "direct",
            "round_trip_s": 0.512346,
            "bytes_per_s": 10_000_000,
            "probe_bytes": 100_000,
            "warning": "has a round trip of 512 ms, more than 250 ms",
        }
    ]
    assert warning_line(bad) == "warning: stage 3 -> stage 4 has a round trip of 512 ms, more than 250 ms"
