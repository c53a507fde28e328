"""Hundreds of whole runs in memory: the text is right whatever overtakes what, and one fault always ends in order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from ppsmoke.errors import DeadlineExceeded
from ppsmoke.messages import EdgeKind, Feedback
from ppsmoke.orchestrator import machine as orchestrator
from ppsmoke.orchestrator.machine import Outcome
from ppsmoke.stage.stage_state import Phase
from ppsmoke.stub_model import StubModel, stub_tokens
from tests.sim.world import World

CHAINS = [2, 3, 4, 5, 8]
REASON = "the injected fault"


def world(seed: object, count: int, feedback: Feedback, prompts: int = 1) -> World:
    rng = random.Random(f"shape of {seed}")
    prompt, *further = [[rng.randrange(1, 256) for _ in range(rng.randint(4, 12))] for _ in range(prompts)]
    return World(
        seed,
        count=count,
        feedback=feedback,
        prompt=prompt,
        parts=rng.randint(1, 4),
        max_tokens=rng.randint(1, 7),
        stub=StubModel(eos_after=rng.choice([0, 0, 1, 3])),
        further=further,
    )


def expected(of: World) -> list[int]:
    return stub_tokens(of.prompt, of.plan.max_tokens, of.nodes[0].actor._worker.stub)  # type: ignore[attr-defined]


def assert_ended(of: World) -> None:
    """Done once, and every provisioned stage that still lives has stopped."""
    assert of.state.phase is orchestrator.Phase.DONE
    assert of.finished == 1
    for node in of.nodes:
        if node.index in of.provisioned and node.alive:
            assert node.state.phase is Phase.STOPPED


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("count", CHAINS)
def test_every_schedule_gives_the_text_of_one_process(count: int, feedback: Feedback) -> None:
    for seed in range(25):
        run = world((count, feedback, seed), count, feedback)
        run.run()
        assert_ended(run)
        assert run.state.outcome is Outcome.COMPLETED
        assert run.shown == expected(run)
        assert run.state.finish_reason == ("eos" if run.shown[-1] == 0 else "max_tokens")
        assert all(node.state.fault is None and node.actor.dropped == 0 for node in run.nodes)


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("count", [2, 3, 5])
def test_further_prompts_are_answered_as_if_each_were_the_only_one(count: int, feedback: Feedback) -> None:
    for seed in range(40):
        run = world((count, feedback, seed), count, feedback, prompts=3)
        prompts = [run.prompt, *run.further]
        run.run()
        assert_ended(run)
        assert run.state.outcome is Outcome.COMPLETED, run.state.error
        stub = run.nodes[0].actor._worker.stub  # type: ignore[attr-defined]
        assert run.answers == [stub_tokens(prompt, run.plan.max_tokens, stub) for prompt in prompts]
        for node in run.nodes:
            assert node.state.fault is None
            assert node.actor._worker.open_requests == [run.request]  # type: ignore[attr-defined]


def stage_fails(run: World, rng: random.Random) -> None:
    rng.choice(run.nodes).fail(REASON)


def stage_dies(run: World, rng: random.Random) -> None:
    rng.choice(run.nodes).die(REASON)


def deadline_passes(run: World, rng: random.Random) -> None:
    run.feed(orchestrator.Faulted(DeadlineExceeded(REASON)))


FAULTS: list[Callable[[World, random.Random], None]] = [stage_fails, stage_dies, deadline_passes]


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("inject", FAULTS)
def test_one_fault_at_any_moment_ends_the_run_in_order_with_its_reason(
    inject: Callable[[World, random.Random], None], feedback: Feedback
) -> None:
    outcomes: Counter[Outcome | None] = Counter()
    phases: set[orchestrator.Phase] = set()
    for seed in range(80):
        rng = random.Random(f"fault {seed}")
        count = rng.choice(CHAINS)
        quiet = world(seed, count, feedback)
        quiet.run()
        run = world(seed, count, feedback)

        def fault(run: World = run, rng: random.Random = rng) -> None:
            phases.add(run.state.phase)
            inject(run, rng)

        run.run(at=rng.randrange(quiet.moves), then=fault)
        assert_ended(run)
        outcomes[run.state.outcome] += 1
        if run.state.outcome is Outcome.FAULTED:
            assert str(run.state.error) == REASON
            assert run.shown == expected(run)[: len(run.shown)]
        else:
            # The fault came after the last token was on its way.
            assert run.shown == expected(run)
    assert outcomes[Outcome.FAULTED] > 40
    phase = orchestrator.Phase
    never = {phase.DONE, phase.PLANNING, phase.IDLE, phase.REDEPLOYING}
    assert phases >= set(orchestrator.Phase) - never


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("inject", FAULTS)
def test_one_fault_at_any_moment_of_a_held_run_spoils_no_earlier_answer(
    inject: Callable[[World, random.Random], None], feedback: Feedback
) -> None:
    phases: set[orchestrator.Phase] = set()
    for seed in range(40):
        rng = random.Random(f"held fault {seed}")
        count = rng.choice([2, 3, 5])
        quiet = world(seed, count, feedback, prompts=3)
        quiet.run()
        run = world(seed, count, feedback, prompts=3)

        def fault(run: World = run, rng: random.Random = rng) -> None:
            phases.add(run.state.phase)
            inject(run, rng)

        idle = [at for at, phase in enumerate(quiet.phases) if phase is orchestrator.Phase.IDLE]
        run.run(at=rng.choice(idle) if seed % 2 else rng.randrange(quiet.moves), then=fault)
        assert_ended(run)
        assert run.answers == quiet.answers[: len(run.answers)]
        if run.state.outcome is Outcome.FAULTED:
            assert str(run.state.error) == REASON
            assert run.shown == quiet.answers[min(len(run.answers), 2)][: len(run.shown)] or run.shown in run.answers
    assert phases >= {orchestrator.Phase.RUNNING, orchestrator.Phase.IDLE}


@pytest.mark.parametrize("feedback", list(Feedback))
def test_a_fault_before_provisioning_stops_nobody(feedback: Feedback) -> None:
    for inject in FAULTS:
        run = world("early", 3, feedback)
        run.run(at=0, then=lambda run=run, inject=inject: inject(run, random.Random(0)))  # type: ignore[misc]
        assert_ended(run)
        if inject is deadline_passes:
            assert run.provisioned == set()


@pytest.mark.parametrize("kind", [EdgeKind.TOKEN_IN, EdgeKind.ACTIVATION, EdgeKind.TOKEN_OUT, EdgeKind.FEEDBACK])
def test_an_object_that_arrives_twice_is_never_computed_twice(kind: EdgeKind) -> None:
    faulted = 0
    for seed in range(60):
        rng = random.Random(f"twice {seed}")
        run = world((kind, seed), rng.choice(CHAINS), Feedback.DIRECT)
        duplicate(run, kind, rng.randrange(4))
        run.run()
        assert_ended(run)
        assert run.shown == expected(run)[: len(run.shown)]
        if run.state.outcome is Outcome.FAULTED:
            faulted += 1
            said = str(run.state.error)
            assert "out of order" in said or "after the end of its request" in said or "expected token" in said
    assert faulted > 10


def duplicate(run: World, kind: EdgeKind, number: int) -> None:
    """The `number`th object on the first edge of that kind travels twice."""
    write, edge_id, seen = run.write, run.plan.edge_of_kind(kind).edge_id, Counter[int]()

    def write_twice(at: int, obj: object) -> None:
        write(at, obj)  # type: ignore[arg-type]
        seen[at] += 1
        if at == edge_id and seen[at] == number + 1:
            write(at, obj)  # type: ignore[arg-type]

    run.write = write_twice  # type: ignore[method-assign]


def test_the_same_seed_is_the_same_run() -> None:
    runs = [world("again", 4, Feedback.DIRECT) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].moves == runs[1].moves
    assert runs[0].shown == runs[1].shown
