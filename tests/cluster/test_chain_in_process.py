"""The whole chain in one process over real iroh: the real orchestrator driver, N real stage nodes, stub workers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ppsmoke.errors import PpError, StageDied
from ppsmoke.messages import Feedback, Generation
from ppsmoke.node_cli import exit_status
from ppsmoke.orchestrator.options import Deadlines, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.request import open_model
from ppsmoke.run_events import (
    ClockCompared,
    MemberSeen,
    PhaseEntered,
    PromptInjected,
    RunBegan,
    RunEnded,
    RunEvent,
    Seen,
    StageDoing,
    StageIsReady,
    StagePace,
    StagePlaced,
    StageState,
    StepRan,
    TokenArrived,
)
from ppsmoke.stage.node import StageNode
from ppsmoke.stage.settings import parse_settings
from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens

RUN = "ab" * 16
PATIENT = Deadlines(silence=20.0)
"""All nodes share one interpreter here and nobody dies: a machine that is busy elsewhere must not look like a death."""


class NodeInProcess:
    """A child that is a task: the same node, without a process of its own."""

    def __init__(self, stage_index: int, log_path: Path) -> None:
        self.stage_index = stage_index
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pid = None
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.told: list[str] = []

    async def start(self, environment: Mapping[str, str]) -> None:
        settings = parse_settings({**environment, "PP_LIFELINE": "0"})
        key = bytes.fromhex(settings.node_key)
        node = StageNode(settings, secret_key=key, announce=self._address.set_result)
        self._node = node
        self._task = asyncio.create_task(self._run(node))

    async def _run(self, node: StageNode) -> None:
        status = 1
        try:
            await node.run()
            status = 0
        except PpError as error:
            status = exit_status(error)
        finally:
            if not self.exited.done():
                self.exited.set_result(status)

    async def address(self, deadline_s: float) -> str:
        return await asyncio.wait_for(self._address, deadline_s)

    def tell_peers(self, tickets: Sequence[str]) -> None:
        self.told += tickets
        self._node.learn_peers(tickets)

    def death(self) -> StageDied:
        status = self.exited.result()
        return StageDied(f"stage {self.stage_index}'s node exited with status {status}", stage=self.stage_index)

    def log_tail(self) -> list[str]:
        return []

    def let_go(self) -> None:
        pass

    def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        if self._task is not None:
            _, running = await asyncio.wait((self._task,), timeout=5)
            for task in running:
                task.cancel()
            await asyncio.wait((self._task,))


@dataclass
class Watcher:
    pieces: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    seen: list[tuple[RunEvent, Seen]] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def detail(self, text: str) -> None:
        self.lines.append(text)

    def waiting(self, text: str) -> None:
        pass

    def settle(self) -> None:
        pass

    async def text(self, piece: str) -> None:
        self.pieces.append(piece)

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        if seen is None:
            self.events.append(event)
        else:
            self.seen.append((event, seen))


def run_chain(
    stages: int,
    feedback: Feedback,
    tmp_path: Path,
    *,
    model: str,
    prompt: str,
    max_tokens: int,
    part: int = 256,
    make_child: Callable[[int, Path], NodeInProcess] = NodeInProcess,
    watcher: Watcher | None = None,
) -> tuple[RunResult, Watcher]:
    opened = open_model(model, None)
    options = RunOptions(
        run_id=RUN,
        model=opened,
        num_stages=stages,
        prompt_tokens=tuple(stub_encode(prompt)),
        generation=Generation(max_tokens=max_tokens, eos_token_ids=opened.stop_token_ids, feedback=feedback),
        context=512,
        log_dir=tmp_path,
        deadlines=PATIENT,
        prefill_part=part,
    )
    watcher = watcher or Watcher()

    async def run() -> RunResult:
        return await LocalRun(options, watcher, make_child=make_child).execute()

    result = asyncio.run(run())
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("edge ")]
    assert not left, f"threads left behind: {left}"
    return result, watcher


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_the_chain_says_what_the_stub_must_say(stages: int, feedback: Feedback, tmp_path: Path) -> None:
    model, prompt = "stub:layers=5", "a prompt in parts " * 3
    result, watcher = run_chain(stages, feedback, tmp_path, model=model, prompt=prompt, max_tokens=12, part=20)
    assert result.error is None
    assert result.tokens == stub_tokens(stub_encode(prompt), 12, parse_stub_model(model))
    assert "".join(watcher.pieces) == result.text == bytes(result.tokens).decode()
    assert result.finish_reason == "max_tokens"
    assert all(stage.prefill is not None and stage.decode_p50 is not None for stage in result.times.stages)


def test_every_stage_is_told_where_its_predecessor_and_the_first_stage_are(tmp_path: Path) -> None:
    nodes: list[NodeInProcess] = []

    def make(stage_index: int, log_path: Path) -> NodeInProcess:
        nodes.append(NodeInProcess(stage_index, log_path))
        return nodes[-1]

    model = "stub:layers=4"
    result, _ = run_chain(4, Feedback.DIRECT, tmp_path, model=model, prompt="hi", max_tokens=1, make_child=make)
    assert result.error is None
    at = [node._address.result() for node in nodes]
    assert [node.told for node in nodes] == [[], [at[0]], [at[1], at[0]], [at[2], at[0]]]


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(("eos_after", "max_tokens"), [(4, 30), (0, 1), (1, 30)])
def test_the_end_is_found_in_both_forms(eos_after: int, max_tokens: int, feedback: Feedback, tmp_path: Path) -> None:
    model = f"stub:layers=3,eos_after={eos_after}"
    result, _ = run_chain(3, feedback, tmp_path, model=model, prompt="hi", max_tokens=max_tokens)
    assert result.error is None
    assert result.tokens == stub_tokens(stub_encode("hi"), max_tokens, parse_stub_model(model))
    assert result.finish_reason == ("eos" if eos_after else "max_tokens")
    assert "\x00" not in result.text


@pytest.mark.parametrize(
    ("knob", "code", "says"),
    [
        ("load_fail=1", "worker_failed", "stage 1"),
        ("fail_at=3", "worker_failed", "stage 1"),
        ("exit_at=0", "worker_died", "stage 1's worker ended with exit status 7"),
        ("kill_at=2", "worker_died", "stage 1's worker ended by SIGKILL"),
    ],
)
def test_a_worker_that_fails_ends_the_run_with_its_stage(knob: str, code: str, says: str, tmp_path: Path) -> None:
    model = f"stub:layers=3,at_stage=1,{knob}"
    result, _ = run_chain(3, Feedback.DIRECT, tmp_path, model=model, prompt="hi", max_tokens=9)
    assert result.error is not None
    assert (result.error.code, result.error.stage) == (code, 1)
    assert says in str(result.error)
    assert result.exit_status == 1


def test_a_run_tells_what_happens_in_order(tmp_path: Path) -> None:
    result, watcher = run_chain(2, Feedback.DIRECT, tmp_path, model="stub:layers=4", prompt="Hello", max_tokens=3)
    told = watcher.events
    phases = [event.phase for event in told if isinstance(event, PhaseEntered)]
    assert phases == ["Planning", "Joining", "Provisioning", "WaitingReady", "Running", "TearingDown", "Done"]
    assert isinstance(told[0], RunBegan)
    assert (told[0].run_id, told[0].layers) == (RUN, ((0, 2), (2, 4)))
    assert told[-1] == RunEnded(0)
    arrived = [event for event in told if isinstance(event, TokenArrived)]
    assert [(event.index, event.token) for event in arrived] == list(enumerate(result.tokens))
    assert [event.finish_reason for event in arrived] == [None, None, "max_tokens"]
    for stage in range(2):
        states = [event.state for event in told if isinstance(event, StageDoing) and event.stage == stage]
        passed = [StageState.STARTING, StageState.JOINING, StageState.LOADING, StageState.PREFILL, StageState.DECODING]
        assert [state for state in states if state in passed] == passed
        assert set(states[-2:]) == {StageState.STOPPING, StageState.STOPPED}
        assert any(isinstance(event, StageIsReady) and event.stage == stage for event in told)
        assert any(isinstance(event, StagePlaced) and event.stage == stage for event in told)
        assert any(isinstance(event, MemberSeen) and (event.member, event.state) == (stage, "alive") for event in told)
    injected = next(at for at, event in enumerate(told) if isinstance(event, PromptInjected))
    assert all(at < injected for at, event in enumerate(told) if isinstance(event, StageIsReady))


def test_every_step_of_every_stage_is_told_on_the_orchestrators_clock(tmp_path: Path) -> None:
    before = time.monotonic()
    result, watcher = run_chain(
        3, Feedback.DIRECT, tmp_path, model="stub:layers=6,step_ms=2", prompt="Hello", max_tokens=4, part=3
    )
    after = time.monotonic()
    steps = [(event, seen) for event, seen in watcher.seen if isinstance(event, StepRan)]
    for stage in range(3):
        mine = [step for step, seen in steps if step.stage == stage and seen.source == stage]
        assert [(step.sequence, step.part) for step in mine] == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]
        assert [step.seq_len for step in mine] == [3, 2, 1, 1, 1]
    for step, seen in steps:
        times = [step.arrived, step.began, step.done, step.back, step.written]
        assert times == sorted(times)
        # One process, one clock: what is off is the estimate, and it says by how much it may be.
        assert before - seen.within <= step.arrived <= step.written <= after + seen.within
        assert step.done - step.began >= 0.002
    injected = watcher.events.index(next(e for e in watcher.events if isinstance(e, PromptInjected)))
    compared = [event for event in watcher.events if isinstance(event, ClockCompared)]
    assert {event.stage for event in compared} == {0, 1, 2}
    assert all(abs(event.offset_s) <= event.within_s for event in compared)
    assert any(isinstance(event, StagePace) for event in watcher.events[injected:])
    members = {(e.seen_by, e.member) for e, _ in watcher.seen if isinstance(e, MemberSeen) and e.state == "alive"}
    assert members >= {(seer, seen) for seer in range(3) for seen in (None, 0, 1, 2) if seer != seen}
    assert result.error is None
