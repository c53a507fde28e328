"""The lines by which a worker tells how far it is: few enough to cost nothing, and none that matters left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsmoke_worker.progress_lines import ProgressLines

from ppsmoke.stage.progress import Progress, worker_progress


class Paper:
    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []

    def line(self, fields: Mapping[str, Any]) -> None:
        self.lines.append(fields)


def test_a_thousand_blocks_a_second_are_a_few_lines_with_the_first_and_the_last() -> None:
    paper, now = Paper(), 0.0
    progress = ProgressLines(paper, lambda: now)
    for done in range(1001):
        now = done / 1000
        progress("loading", done, 1000, "blocks")
    progress("compiling", 0, 1, "kernels")
    progress("compiling", 1, 1, "kernels")
    loading = [line["done"] for line in paper.lines if line["state"] == "loading"]
    assert loading == [0, 250, 500, 750, 1000]
    assert [line["done"] for line in paper.lines if line["state"] == "compiling"] == [0, 1]


def test_the_node_reads_what_the_worker_writes_and_passes_over_what_makes_no_sense() -> None:
    paper = Paper()
    ProgressLines(paper, lambda: 0.0)("loading", 4, 6, "blocks")
    assert worker_progress(paper.lines[0]) == Progress("loading 4 of 6 blocks", "loading", 4, 6, "blocks")
    for wrong in ({"done": 7}, {"done": "4"}, {"state": "dancing"}, {"unit": "miles"}, {"done": -1}):
        assert worker_progress({**paper.lines[0], **wrong}) is None
