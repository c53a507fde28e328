"""Random schedules of legal and illegal events: what the stage machine promises holds after every step."""

from __future__ import annotations

import random

import pytest

from ppsmoke.messages import Feedback, ProvisionStage
from ppsmoke.stage.machine import (
    Action,
    EdgeReady,
    EdgesStopped,
    EmitFault,
    EmitReady,
    EmitStopped,
    Event,
    ExecuteStep,
    Failed,
    ObjectLoaded,
    ProvisionReceived,
    Refuse,
    ReleaseInput,
    StepDone,
    StopReceived,
    WorkerPrepared,
    WorkerReset,
    step,
)
from ppsmoke.stage.stage_state import Handle, Phase, StageState
from tests.samples import (
    ORCHESTRATOR,
    OTHER_REQUEST,
    OTHER_RUN,
    REQUEST,
    RUN,
    STRANGER,
    provision,
)
from tests.stage.machines import STOP, preparations, provisioned, unprovisioned


class Promises:
    """Watches one machine and asserts what must hold after every step."""

    def __init__(self, state: StageState) -> None:
        self.state = state
        self.prepared: set[object] = set()
        self.executed: list[Handle] = []
        self.released: list[Handle] = []
        self.ready = self.faults = self.stopped = self.stops_after_stopped = 0
        self.asked_to_stop = False
        self.ended: set[type] = set()

    def feed(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        if isinstance(event, (WorkerPrepared, EdgeReady)) and before.phase is Phase.PREPARING:
            self.prepared.add(event)
        if isinstance(event, StopReceived) and (event.sender, event.run_id) == (ORCHESTRATOR, RUN):
            self.asked_to_stop = True
            self.stops_after_stopped += before.phase is Phase.STOPPED
        if isinstance(event, (EdgesStopped, WorkerReset)) and before.phase is Phase.STOPPING:
            self.ended.add(type(event))
        for action in actions:
            self.see(action)
        if any(isinstance(action, Refuse) for action in actions):
            assert self.state == before
        self.check()

    def see(self, action: Action) -> None:
        match action:
            case EmitReady():
                self.ready += 1
                assert self.state.provision is not None
                assert self.prepared >= set(preparations(self.state.provision))
            case EmitFault():
                self.faults += 1
                assert not self.asked_to_stop
            case EmitStopped():
                self.stopped += 1
            case ExecuteStep(handle):
                assert self.ready == 1
                assert self.faults == 0
                assert not self.asked_to_stop
                # What ran before was released: at most one step is outstanding.
                assert all(handle in self.released for handle in self.executed)
                assert handle not in self.executed
                self.executed.append(handle)
            case ReleaseInput(handle):
                assert handle not in self.released
                assert handle.done or handle in self.executed
                self.released.append(handle)

    def check(self) -> None:
        assert self.ready <= 1
        assert self.faults <= 1
        assert (self.state.phase is Phase.EXECUTING) == (self.state.executing is not None)
        both_ended = self.ended == {EdgesStopped, WorkerReset}
        assert self.stopped == (1 + self.stops_after_stopped if self.asked_to_stop and both_ended else 0)
        assert (self.state.phase is Phase.STOPPED) == both_ended
        if not self.faults and not self.asked_to_stop:
            outstanding = [] if self.state.executing is None else [self.state.executing]
            assert [handle for handle in self.released if not handle.done] + outstanding == self.executed


def next_legal(state: StageState, message: ProvisionStage, rng: random.Random) -> Event:
    """Something a correct driver could say now."""
    entry = message.inbound[0].edge_id
    decode = message.inbound[-1].edge_id
    following = state.next
    match state.phase:
        case Phase.UNPROVISIONED:
            return provisioned(message)
        case Phase.PREPARING:
            return rng.choice(preparations(message))
        case Phase.READY if following.request_id is None or following.part:
            return ObjectLoaded(Handle(entry, REQUEST, 0, following.part, last_part=rng.random() < 0.6))
        case Phase.READY if following.over:
            return STOP
        case Phase.READY:
            ends = rng.random() < 0.1
            return ObjectLoaded(Handle(decode, REQUEST, following.sequence, 0, True, done=ends))
        case Phase.EXECUTING:
            assert state.executing is not None
            return StepDone(state.executing)
        case Phase.FAULTED:
            return STOP
        case _:
            return rng.choice([EdgesStopped(), WorkerReset(), STOP])


def anything(message: ProvisionStage, rng: random.Random) -> Event:
    """An event of any kind, mostly out of place."""
    handle = Handle(
        rng.randrange(6),
        rng.choice([REQUEST, OTHER_REQUEST]),
        rng.randrange(3),
        rng.randrange(2),
        rng.random() < 0.8,
        rng.random() < 0.2,
    )
    sender = rng.choice([ORCHESTRATOR, STRANGER, message.inbound[0].producer_node_id])
    return rng.choice(
        [
            ProvisionReceived(sender, rng.choice([message, message.replace(run_id=OTHER_RUN)])),
            StopReceived(STRANGER, RUN, "mischief"),
            StopReceived(ORCHESTRATOR, OTHER_RUN, "stale"),
            rng.choice([StopReceived(sender, RUN, "maybe"), WorkerPrepared()]),
            WorkerPrepared(),
            EdgeReady(rng.randrange(6)),
            ObjectLoaded(handle),
            StepDone(handle),
            rng.choice([Failed("it broke"), EdgesStopped()]),
            EdgesStopped(),
            WorkerReset(),
        ]
    )


@pytest.mark.parametrize("disorder", [0.0, 0.05, 0.3, 0.9])
def test_random_schedules_keep_the_promises(disorder: float) -> None:
    reached: set[Phase] = set()
    for seed in range(150):
        rng = random.Random(f"{disorder} {seed}")
        stages = rng.choice([2, 3, 5])
        index = rng.randrange(stages)
        message = provision(index, stages, rng.choice(list(Feedback)))
        promises = Promises(unprovisioned(index, stages))
        for _ in range(60):
            if rng.random() < disorder:
                promises.feed(anything(message, rng))
            else:
                promises.feed(next_legal(promises.state, message, rng))
            reached.add(promises.state.phase)
    assert reached >= set(Phase) - ({Phase.FAULTED} if disorder == 0 else set()) - {Phase.UNPROVISIONED}


def test_legal_schedules_never_fault_and_leave_nothing_unreleased() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        message = some_provision(rng)
        promises = Promises(unprovisioned(message.stage_index, message.stage_count))
        while not promises.asked_to_stop and len(promises.executed) < 20:
            promises.feed(next_legal(promises.state, message, rng))
        assert promises.faults == 0
        for event in (STOP, EdgesStopped(), WorkerReset()):
            promises.feed(event)
        assert promises.stopped == 1


def some_provision(rng: random.Random) -> ProvisionStage:
    stages = rng.choice([2, 4, 8])
    return provision(rng.randrange(stages), stages, rng.choice(list(Feedback)))
