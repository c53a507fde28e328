"""The trace keeps to the format's rules: what breaks them, a viewer leaves out without a word."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ppsmoke.report.analysis import analyse
from ppsmoke.report.source import read_story
from ppsmoke.report.trace import trace_json
from tests.report.recipe import Recipe, make

_NEEDED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
}


def check_trace(trace: dict[str, Any]) -> None:
    """Every event has what its phase needs; slices of a thread nest; a flow begins and ends inside a slice, forward."""
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in trace["traceEvents"]:
        assert _NEEDED[event["ph"]] <= event.keys(), event
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert isinstance(event["ts"], int)
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "sf":
            assert event["ph"] not in flows[event["id"]]
            flows[event["id"]][event["ph"]] = event
    for found in slices.values():
        open_ends: list[int] = []
        for begin, end in sorted(found, key=lambda pair: (pair[0], -pair[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], "two slices of a thread overlap"
            open_ends.append(end)
    for ends in flows.values():
        assert ends["s"]["ts"] <= ends["f"]["ts"]
        for event in ends.values():
            inside = slices[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] <= end for begin, end in inside)


def test_a_trace_keeps_to_the_format_and_has_every_step(tmp_path: Path) -> None:
    made = make(Recipe(wire={(1, 2): 0.01}))
    story = read_story(made.write(tmp_path))
    trace = json.loads(json.dumps(trace_json(story, analyse(story))))
    check_trace(trace)
    events = trace["traceEvents"]
    assert sum(e["ph"] == "X" and e["cat"] == "step" for e in events) == len(made.spans)
    assert sum(e["ph"] == "i" and e["cat"] == "token" for e in events) == 12
    # Every step but the very last one's output begins another step; of the prompt's two parts only the last one's
    # output is a token.
    assert sum(e["ph"] == "s" for e in events) == len(made.spans) - 2
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"orchestrator", "stage 0", "stage 1", "stage 2", "stage 3"}


def test_clocks_that_disagree_break_no_rule(tmp_path: Path) -> None:
    made = make(Recipe())
    for span in made.spans:
        if span.stage == 1:
            for name in ("arrived", "began", "done", "back", "written"):
                object.__setattr__(span, name, getattr(span, name) - 2.0)
    story = read_story(made.write(tmp_path))
    check_trace(trace_json(story, analyse(story)))
