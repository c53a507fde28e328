"""Nodes of a source that has others: what befalls one before the plan is provisioned costs its place, not the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ppsmoke.errors import HostFailed, PpError, RunFailed
from ppsmoke.membership import Member, local_config
from ppsmoke.membership.api import OnChange
from ppsmoke.messages import Feedback, Generation
from ppsmoke.orchestrator.node_environment import node_environment
from ppsmoke.orchestrator.node_source import Network, NodeNews, Site
from ppsmoke.orchestrator.options import Deadlines, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import ChainRun
from ppsmoke.request import open_model
from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from ppsmoke.transport import node_id_of
from tests.cluster.test_chain_in_process import RUN, NodeInProcess, Watcher

MODEL = "stub:layers=4"


@dataclass
class Spares:
    """Two nodes in this process, of which stage 1's first one `fails` in some way, and a spare for every stage."""

    options: RunOptions
    fails: str
    spares: int = 1
    network: Network = field(default_factory=lambda: Network(True, (), local_config(), remote=True))
    replaced: list[dict[int, str]] = field(default_factory=list)
    nodes: list[NodeInProcess] = field(default_factory=list)
    hear: OnChange = lambda before, after: None

    async def start(self, site: Site, news: NodeNews) -> None:
        self.site, self.news = site, news
        for stage in range(2):
            await self._begin(stage, "" if stage == 0 else self.fails)

    async def _begin(self, stage: int, fails: str) -> None:
        if fails == "never starts":
            return
        node = NodeInProcess(stage, self.options.log_dir / f"{stage}.log")
        self.nodes.append(node)
        environment = node_environment(
            self.options,
            stage,
            inherited={},
            seed_ticket=self.site.ticket,
            node_key=self.site.node_key(stage),
            join_token=self.site.join_token,
        )
        await node.start(environment)
        if fails == "machine":
            self.news.node_ended(stage, HostFailed("its machine failed: it burns", stage=stage))
        if fails == "leaves":
            node.kill()

    async def replace(self, stages: Mapping[int, str]) -> bool:
        if len(self.replaced) >= self.spares:
            raise RunFailed("no machine is left", phase="renting")
        self.replaced.append(dict(stages))
        for stage in stages:
            before = node_id_of(self.site.node_key(stage))
            self.site.renew_node_key(stage)
            # Its death is noticed late, when another one has its place: that concerns nobody any more.
            self.hear(None, Member(before, "dead", "", stage, reason="it fell silent"))
            await self._begin(stage, "")
        return True

    def has_ended(self, stage: int) -> bool:
        return False

    def log_tail(self, stage: int) -> list[str]:
        return []

    def kill(self, stages: Iterable[int]) -> None: ...

    def interrupted(self, times: int, signal_name: str) -> None: ...

    def describe(self) -> str:
        return "2 nodes"

    async def end(self, grace_s: float, why: PpError | None) -> None:
        for node in self.nodes:
            await node.end()


def run(folder: Path, fails: str, spares: int = 1) -> tuple[RunResult, Spares]:
    model = open_model(MODEL, None)
    options = RunOptions(
        run_id=RUN,
        model=model,
        num_stages=2,
        prompt_tokens=tuple(stub_encode("hi")),
        generation=Generation(max_tokens=5, eos_token_ids=model.stop_token_ids, feedback=Feedback.DIRECT),
        context=512,
        log_dir=folder,
        deadlines=Deadlines(join=5.0),
    )

    async def serve() -> tuple[RunResult, Spares]:
        source = Spares(options, fails, spares)
        chain = ChainRun(options, Watcher(), source)
        source.hear = chain._member_changed
        return await chain.execute(), source

    return asyncio.run(serve())


@pytest.mark.parametrize(
    ("fails", "says"),
    [("never starts", "it did not join within 5 s"), ("machine", "its machine failed: it burns"), ("leaves", "")],
)
def test_a_node_that_cannot_serve_is_replaced_under_another_key(fails: str, says: str, tmp_path: Path) -> None:
    result, source = run(tmp_path, fails)
    assert result.error is None, result.error
    assert result.tokens == stub_tokens(stub_encode("hi"), 5, parse_stub_model(MODEL))
    [replaced] = source.replaced
    assert list(replaced) == [1]
    assert says in replaced[1]


def test_when_there_is_no_other_the_run_fails_with_the_reason(tmp_path: Path) -> None:
    result, source = run(tmp_path, "machine", spares=0)
    assert str(result.error) == "no machine is left"
    assert source.replaced == []
