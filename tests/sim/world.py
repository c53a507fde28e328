"""A whole run in memory: one orchestrator machine, N stage machines with their actors, and a network that dawdles.

Everything that takes time is a thunk in a channel. A channel keeps its order; which channel moves next is the seeded
generator's choice, so edges, control links, workers and local news overtake each other in every possible way.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ppsmoke.errors import PpError, StageDied, StageFaulted
from ppsmoke.messages import (
    ControlMessage,
    EdgeKind,
    Feedback,
    ProvisionStage,
    StageFault,
    StageReady,
    StageStopped,
    StopRun,
    decode_message,
    encode_message,
)
from ppsmoke.objects import StreamObject, decode_object, encode_header, token_payload
from ppsmoke.orchestrator import machine as orchestrator
from ppsmoke.plan import EdgePlan, RunPlan, Stage, provision_stage
from ppsmoke.stage import actor as actors
from ppsmoke.stage import machine as stages
from ppsmoke.stage.stage_state import Handle, Phase, StageState
from ppsmoke.stub_model import StubModel
from tests.fake_worker import FakeWorker, Inbox
from tests.samples import ORCHESTRATOR, REQUEST, node_id, plan


class World:
    """`run()` until nothing moves any more; then `state`, `shown` and the nodes' states tell what became of the run."""

    def __init__(
        self,
        seed: object,
        *,
        count: int,
        feedback: Feedback,
        prompt: list[int],
        parts: int,
        max_tokens: int,
        stub: StubModel,
        further: Sequence[list[int]] = (),
    ) -> None:
        self.rng = random.Random(str(seed))
        self.plan: RunPlan = plan(count, feedback, max_tokens=max_tokens)
        self.prompt, self.parts = prompt, parts
        self.further = list(further)  # prompts after the first; with any the run is held
        self.request = REQUEST
        self.state = orchestrator.RunState(self.plan, hold=bool(further), request_id=REQUEST)
        self.nodes = [Node(self, index, stub) for index in range(count)]
        self.channels: dict[Hashable, deque[Callable[[], None]]] = {}
        self.moves = 0
        self.phases: list[orchestrator.Phase] = []  # before each move
        self.shown: list[int] = []
        self.answers: list[list[int]] = []
        self.finished = 0
        self.provisioned: set[int] = set()
        self.later("cluster", lambda: self.feed(orchestrator.ClusterFormed()))

    def run(self, at: int = -1, then: Callable[[], None] = lambda: None) -> None:
        """Move until all is still; before move number `at`, `then` happens."""
        while busy := [channel for channel, queue in self.channels.items() if queue]:
            if self.moves == at:
                then()
            self.phases.append(self.state.phase)
            self.channels[self.rng.choice(busy)].popleft()()
            self.moves += 1
            assert self.moves < 20_000, "the run does not come to rest"

    def later(self, channel: Hashable, thunk: Callable[[], None]) -> None:
        self.channels.setdefault(channel, deque()).append(thunk)

    def write(self, edge_id: int, obj: StreamObject) -> None:
        """Put an object on an edge, as the bytes that would travel."""
        edge = self.plan.edge(edge_id)
        record = encode_header(replace(obj, edge_id=edge_id)) + obj.payload
        self.later(("edge", edge_id), lambda: self.arrive(edge, record))

    def arrive(self, edge: EdgePlan, record: bytes) -> None:
        obj = decode_object(record, edge.object_spec)
        if isinstance(edge.consumer, Stage):
            self.nodes[edge.consumer.stage_index].load(edge, obj)
        else:
            self.feed(orchestrator.TokenConsumed(obj.sequence, obj.tokens[0], obj.finish_reason, obj.request_id))

    # ---- the orchestrator's driver ----

    def feed(self, event: orchestrator.Event) -> None:
        self.state, actions = orchestrator.step(self.state, event)
        for action in actions:
            self.perform(action)

    def perform(self, action: orchestrator.Action) -> None:
        match action:
            case orchestrator.ProvisionStages():
                for node in self.nodes:
                    self.provisioned.add(node.index)
                    self.tell(node, provision_stage(self.plan, node.index))
                self.later("links", lambda: self.feed(orchestrator.Provisioned()))
                for condition in (orchestrator.Condition.TOKEN_PRODUCER, orchestrator.Condition.TOKEN_CONSUMER):
                    self.meet(condition)
            case orchestrator.InjectPrompt():
                for part in self.prompt_parts():
                    self.write(self.plan.edge_of_kind(EdgeKind.TOKEN_IN).edge_id, part)
            case orchestrator.InjectToken(sequence, token):
                assert self.shown[sequence - 1] == token, "a token was fed back that was not shown"
                position = len(self.prompt) + sequence - 1
                obj = StreamObject(0, self.request, sequence, position, 1, token_payload([token]))
                self.write(self.plan.edge_of_kind(EdgeKind.TOKEN_IN).edge_id, obj)
            case orchestrator.EmitToken(token, _):
                self.shown.append(token)
            case orchestrator.FinishAnswer():
                self.later("user", self.next_prompt)
            case orchestrator.StopStage(index, reason):
                self.tell(self.nodes[index], StopRun(run_id=self.plan.run_id, reason=reason))
            case orchestrator.CloseTokenEnds():
                self.later("token ends", lambda: self.feed(orchestrator.TokenEndsClosed()))
            case orchestrator.Finish():
                self.finished += 1

    def next_prompt(self) -> None:
        self.answers.append(self.shown)
        if not self.further:
            self.feed(orchestrator.HoldEnded("no further prompt"))
            return
        self.prompt, self.shown = self.further.pop(0), []
        self.request = f"{self.rng.getrandbits(128):032x}"
        self.feed(orchestrator.PromptGiven(self.request, self.plan.max_tokens))

    def meet(self, condition: orchestrator.Condition) -> None:
        self.later(condition, lambda: self.feed(orchestrator.ConditionMet(condition)))

    def prompt_parts(self) -> list[StreamObject]:
        """The prompt cut into `parts` parts at random places."""
        cuts = [0, *sorted(self.rng.sample(range(1, len(self.prompt)), self.parts - 1)), len(self.prompt)]
        return [
            StreamObject(
                edge_id=0,
                request_id=self.request,
                sequence=0,
                position=cuts[part],
                seq_len=cuts[part + 1] - cuts[part],
                payload=token_payload(self.prompt[cuts[part] : cuts[part + 1]]),
                part=part,
                last_part=part == self.parts - 1,
                is_prefill=True,
            )
            for part in range(self.parts)
        ]

    def tell(self, node: Node, message: ControlMessage) -> None:
        received = decode_message(json.loads(json.dumps(encode_message(message))))
        self.later(("to", node.index), lambda: node.hear(received))

    def hear(self, message: ControlMessage) -> None:
        match message:
            case StageReady(stage_index=index):
                self.feed(orchestrator.StageIsReady(index))
            case StageFault(stage_index=index, reason=reason):
                self.feed(orchestrator.Faulted(StageFaulted(reason, stage=index)))
            case StageStopped(stage_index=index):
                self.feed(orchestrator.StageHasStopped(index))


class Node:
    """One stage's driver."""

    def __init__(self, world: World, index: int, stub: StubModel) -> None:
        self.world = world
        self.index = index
        self.state = StageState(
            stage_index=index,
            stage_count=len(world.plan.stages),
            node_id=node_id(index),
            orchestrator_id=ORCHESTRATOR,
            expected_run_id=world.plan.run_id,
        )
        self.alive = True
        self.edges_open = True
        self.inputs: dict[Handle, StreamObject] = {}
        self.actor = actors.StageActor(
            stage_index=index,
            stage_count=len(world.plan.stages),
            worker=FakeWorker(index, stub),
            generation=world.plan.generation,
            context=world.plan.model.max_seq_len,
            log=self.refuse_to_log,
        )

    def refuse_to_log(self, line: str) -> None:
        raise AssertionError(f"stage {self.index}: {line}")

    def later(self, what: str | int, thunk: Callable[[], None]) -> None:
        self.world.later((self.index, what), thunk)

    def feed(self, event: stages.Event) -> None:
        if not self.alive:
            return
        self.state, actions = stages.step(self.state, event)
        for action in actions:
            self.perform(action)

    def hear(self, message: ControlMessage) -> None:
        match message:
            case ProvisionStage():
                self.feed(stages.ProvisionReceived(ORCHESTRATOR, message))
            case StopRun(run_id=run_id, reason=reason):
                self.feed(stages.StopReceived(ORCHESTRATOR, run_id, reason))

    def load(self, edge: EdgePlan, obj: StreamObject) -> None:
        if not self.edges_open:
            return
        if edge.kind is EdgeKind.FEEDBACK:
            obj = replace(obj, sequence=obj.sequence + 1)
        handle = Handle(edge.edge_id, obj.request_id, obj.sequence, obj.part, obj.last_part, obj.done)
        self.inputs[handle] = obj
        self.feed(stages.ObjectLoaded(handle))

    def perform(self, action: stages.Action) -> None:
        plan_run = self.world.plan.run_id
        where: dict[str, Any] = {"run_id": plan_run, "stage_index": self.index, "node_id": node_id(self.index)}
        match action:
            case stages.PrepareWorker():
                self.later("worker", lambda: self.feed(stages.WorkerPrepared()))
            case stages.OpenEdges(message):
                self.actor.handle(self.neighbors(message))
                for edge_id in message.edge_ids:
                    self.later(edge_id, lambda edge_id=edge_id: self.feed(stages.EdgeReady(edge_id)))  # type: ignore[misc]
            case stages.EmitReady():
                self.report(StageReady(**where))
                if self.index == 0:
                    self.world.meet(orchestrator.Condition.ENTRY)
            case stages.ForgetRequest(request_id):
                self.actor.handle(actors.Reset(request_id))
            case stages.ExecuteStep(handle):
                self.later("worker", lambda: self.compute(handle))
            case stages.ReleaseInput(handle):
                del self.inputs[handle]
            case stages.EmitFault(_, reason, code, log_tail):
                self.report(StageFault(**where, reason=reason, code=code, log_tail=log_tail))
            case stages.StopEdges():
                self.edges_open = False
                self.later("edges", lambda: self.feed(stages.EdgesStopped()))
            case stages.ResetWorker():
                self.world.channels.pop((self.index, "worker"), None)  # a step in progress is abandoned
                self.later("worker", lambda: self.feed(stages.WorkerReset()))
            case stages.EmitStopped():
                self.report(StageStopped(**where))
            case stages.Refuse(_, reason):
                assert self.state.phase in (Phase.FAULTED, Phase.STOPPING, Phase.STOPPED), reason

    def neighbors(self, message: ProvisionStage) -> actors.SetNeighbors:
        senders = {edge.kind: self.sender(edge.edge_id) for edge in message.outbound}
        following = senders.get(EdgeKind.ACTIVATION) or senders.get(EdgeKind.FEEDBACK)
        return actors.SetNeighbors(next=following, reply_to=senders.get(EdgeKind.TOKEN_OUT))

    def sender(self, edge_id: int) -> Outlet:
        return Outlet(lambda obj: self.world.write(edge_id, obj))

    def report(self, message: ControlMessage) -> None:
        self.world.later(("from", self.index), lambda: self.world.hear(message))

    def compute(self, handle: Handle) -> None:
        if not self.alive or self.state.executing != handle:
            return
        obj = self.inputs[handle]
        kind = self.world.plan.edge(handle.edge_id).kind
        message: actors.Message = actors.NextToken(obj)
        if kind is EdgeKind.ACTIVATION:
            message = actors.Activation(obj)
        elif handle.sequence == 0:
            message = actors.Inference(obj)
        self.actor.handle(message)
        # The output may be far down the chain before this stage hears that its own step is done.
        self.later("step", lambda: self.feed(stages.StepDone(handle)))

    def fail(self, reason: str) -> None:
        self.feed(stages.Failed(reason))

    def die(self, reason: str) -> None:
        """The process is gone; the orchestrator hears of it, and that it need not wait for this stage to stop."""
        self.alive = self.edges_open = False
        died: PpError = StageDied(reason, stage=self.index)
        self.world.later("children", lambda: self.world.feed(orchestrator.Faulted(died)))
        self.world.later("children", lambda: self.world.feed(orchestrator.StageHasStopped(self.index)))


class Outlet(Inbox):
    """A neighbour at the other end of one of the world's edges."""

    def __init__(self, write: Callable[[StreamObject], None]) -> None:
        super().__init__([])
        self.write = write

    def send(self, payload: bytes) -> None:
        super().send(payload)
        self.write(self.objects.pop())
