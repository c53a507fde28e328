"""Chains in one process whose connections are lost while they decode: the text is the same as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.messages import Feedback
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.run_events import PathChanged
from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from tests.cluster.test_chain_in_process import NodeInProcess, Watcher, run_chain

MODEL, PROMPT, TOKENS = "stub:layers=5", "a prompt in parts " * 3, 40
STAGES = 3


class Cutter:
    """Cuts the link of a stage to a node, once for each of these many tokens that have come."""

    def __init__(self, stage: int, other: int | None, at: set[int]) -> None:
        self.stage = stage
        self.other = other
        self.at = at
        self.nodes: dict[int, NodeInProcess] = {}
        self.cuts = 0

    def make_child(self, stage_index: int, log_path: Path) -> NodeInProcess:
        self.nodes[stage_index] = NodeInProcess(stage_index, log_path)
        return self.nodes[stage_index]

    def token_came(self, count: int) -> None:
        if count not in self.at:
            return
        mesh = self.nodes[self.stage]._node._mesh
        if self.other is None:
            peer = self.nodes[self.stage]._node._orchestrator
        else:
            peer = self.nodes[self.other]._node._mesh.node_id
        self.cuts += peer in mesh.linked()
        mesh.break_link(peer, "cut by a test")


def run_cut(cutter: Cutter, feedback: Feedback, folder: Path) -> tuple[RunResult, Watcher]:
    class Watching(Watcher):
        async def text(self, piece: str) -> None:
            await super().text(piece)
            cutter.token_came(len("".join(self.pieces)))

    return run_chain(
        STAGES, feedback, folder, model=MODEL, prompt=PROMPT, max_tokens=TOKENS, part=20, make_child=cutter.make_child,
        watcher=Watching(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "other", "feedback", "edge"),
    [
        pytest.param(0, None, Feedback.ORCHESTRATOR, "orchestrator -> stage 0", id="TokenIn"),
        pytest.param(0, 1, Feedback.DIRECT, "stage 0 -> stage 1", id="Activation"),
        pytest.param(2, None, Feedback.DIRECT, "stage 2 -> orchestrator", id="TokenOut"),
        pytest.param(0, 2, Feedback.DIRECT, "stage 2 -> stage 0", id="Feedback"),
    ],
)
def test_a_connection_lost_in_decode_costs_no_token_and_is_told(
    stage: int, other: int | None, feedback: Feedback, edge: str, tmp_path: Path
) -> None:
    cutter = Cutter(stage, other, {3, 4, 20})
    result, watcher = run_cut(cutter, feedback, tmp_path)
    assert result.error is None
    assert result.tokens == stub_tokens(stub_encode(PROMPT), TOKENS, parse_stub_model(MODEL))
    assert "".join(watcher.pieces) == result.text == bytes(result.tokens).decode()
    assert cutter.cuts >= 2
    told = [line for line in watcher.lines if line.startswith(f"{edge}: connection lost, resumed after ")]
    assert told
    changes = [event for event in watcher.events if isinstance(event, PathChanged)]
    assert {(change.before, change.after) for change in changes} == {("direct", "direct")}
    assert len(changes) >= len(told)
