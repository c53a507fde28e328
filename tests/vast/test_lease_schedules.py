"""Random schedules of the lease book: whatever the order of faults, cancels and kills, every instance that was created
is destroyed at the end, or named; and after a kill a teardown needs only the journal and the account.
"""

from __future__ import annotations

import random

import pytest

from ppsmoke.vast.lease_events import (
    Create,
    Destroy,
    FindOffer,
    GiveUp,
    Held,
    Hurry,
    Kind,
    Lost,
    Record,
    Release,
    ReplaceHost,
)
from ppsmoke.vast.lease_records import BookState, LeaseLimits, Phase
from tests.vast.simulated_renting import TIMES, Chances, Simulation, teardown_after_kill

SEEDS = 400


@pytest.mark.parametrize("block", range(8))
def test_nothing_is_left_after_any_schedule(block: int) -> None:
    outcomes: set[str] = set()
    for seed in range(block * SEEDS // 8, (block + 1) * SEEDS // 8):
        rng = random.Random(f"any {seed}")
        simulation = started(rng)
        simulation.run()
        check_order(simulation)
        check_end(simulation)
        outcomes.add("held" if any(isinstance(x, Held) for x in simulation.performed) else "failed")
    assert outcomes == {"held", "failed"}  # both ends were reached, or the schedules show little


@pytest.mark.parametrize("block", range(8))
def test_a_teardown_finds_all_that_a_killed_run_left(block: int) -> None:
    found = 0
    for seed in range(block * SEEDS // 8, (block + 1) * SEEDS // 8):
        rng = random.Random(f"kill {seed}")
        dead = started(rng)
        dead.run(until=rng.uniform(0.0, 200.0))
        found += bool(dead.account.alive(dead.now))
        after = teardown_after_kill(dead, later=rng.choice([0.0, 1.0, 30.0, 4000.0]))
        after.run()
        assert not after.state.unverified
        assert_nothing_alive(after)
    assert found > SEEDS // 32


def test_a_hurried_or_abandoned_release_names_what_it_could_not_verify() -> None:
    named = 0
    for seed in range(SEEDS):
        rng = random.Random(f"hurry {seed}")
        simulation = started(rng, until=5000.0)
        leave = rng.uniform(0.0, 200.0)
        simulation.post(leave, Release("Ctrl-C"))
        simulation.post(leave + rng.uniform(0.0, 5.0), Hurry())
        if rng.random() < 0.3:
            simulation.post(leave + rng.uniform(5.0, 20.0), GiveUp("Ctrl-C a third time"))
        simulation.run()
        assert simulation.done_at is not None
        assert simulation.done_at <= leave + 5.0 + TIMES.hurry + 0.001
        ids = {instance_id for x in simulation.state.unverified for instance_id in x.ids}
        labels = {x.label for x in simulation.state.unverified}
        for machine in [*simulation.account.alive(simulation.now), *simulation.account.to_come(simulation.now)]:
            assert machine.instance_id in ids or machine.mark in labels
            named += 1
    assert named  # the schedules did leave something to name


def test_the_book_is_done_when_its_time_is_over_however_broken_the_service_is() -> None:
    for seed in range(100):
        rng = random.Random(f"broken {seed}")
        simulation = started(rng, until=float("inf"), list_fails=0.95, destroy_fails=0.9)
        simulation.post(rng.uniform(0.0, 100.0), Release("enough"))
        simulation.run()
        assert simulation.done_at is not None
        assert simulation.done_at <= 100.0 + TIMES.release + 0.001
        named = {instance_id for x in simulation.state.unverified for instance_id in x.ids}
        labels = {x.label for x in simulation.state.unverified}
        for machine in simulation.account.alive(simulation.now):
            assert machine.instance_id in named or machine.mark in labels


# ---- helpers


def started(rng: random.Random, until: float = 700.0, **chances: float) -> Simulation:
    """A run in trouble: all kinds of it until `until`, and an end of its own some time after it was held."""
    simulation = Simulation(
        rng,
        stages=rng.choice([2, 3, 5]),
        chances=Chances(until=until, **chances),
        limits=LeaseLimits(max_spend=rng.choice([None, 0.02])),
        disk_full_at=rng.choice([None, None, None, rng.uniform(0.0, 60.0)]),
    )
    simulation.acquire()
    if rng.random() < 0.3:
        simulation.post(rng.uniform(0.0, 300.0), Release("Ctrl-C"))
    if rng.random() < 0.3:
        simulation.post(rng.uniform(0.0, 300.0), ReplaceHost(rng.randrange(2), "its node never joined"))
    simulation.post(1500.0, Release("the run is over"))
    return simulation


def check_order(simulation: Simulation) -> None:
    """A failed machine is replaced only after its destruction was recorded and asked for; no machine serves twice."""
    failed: dict[int, set[int]] = {}
    asked: set[int] = set()
    recorded: set[int] = set()
    machines: list[int | None] = []
    for action in simulation.performed:
        match action:
            case Record(entry) if entry.kind is Kind.FAILED and entry.instance_id is not None:
                failed.setdefault(entry.stage or 0, set()).add(entry.instance_id)
            case Record(entry) if entry.kind is Kind.DESTROY and entry.instance_id is not None:
                recorded.add(entry.instance_id)
            case Destroy(instance_id):
                assert instance_id in recorded
                asked.add(instance_id)
            case FindOffer(stage):
                assert failed.get(stage, set()) <= asked
            case Create(candidate):
                assert failed.get(candidate.stage, set()) <= asked
                machines.append(candidate.machine_id)
            case Lost():
                assert any(isinstance(x, Held) for x in simulation.performed)
            case _:
                pass
    assert len(machines) == len(set(machines))


def check_end(simulation: Simulation) -> None:
    state: BookState = simulation.state
    assert state.phase is Phase.DONE
    assert not state.unverified, "the service came back long before the release gave up"
    assert_nothing_alive(simulation)
    kinds = [x.entry.kind for x in simulation.journal]
    if simulation.disk_full_at is None and Kind.INTENT in kinds:
        assert kinds[-1] is Kind.CLOSED


def assert_nothing_alive(simulation: Simulation) -> None:
    account = simulation.account
    assert account.alive(simulation.now) == []
    assert account.to_come(simulation.now) == []
