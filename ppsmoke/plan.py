"""The run plan: who computes which blocks, and which directed channels join them. Pure data, made before any process.

A stage's token ids go in on `TokenIn`, activations from stage i to i + 1, tokens out on `TokenOut`, and with direct
feedback straight from the last stage to the first on `Feedback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from ppsmoke.errors import BadStageCount, PlanInvalid
from ppsmoke.messages import (
    Count,
    EdgeKind,
    Feedback,
    Generation,
    GgufSource,
    InboundEdgeProvision,
    NodeId,
    ObjectSpec,
    OutboundEdgeProvision,
    ProvisionStage,
    RingSpec,
    RunId,
    Size,
    StageModelFacts,
)
from ppsmoke.record import Record
from ppsmoke.roles import layer_range

TOKEN_BYTES = 4


class Orchestrator(Record):
    """An edge's end at the orchestrator."""

    at: Literal["orchestrator"] = "orchestrator"
    node_id: NodeId

    def describe(self) -> str:
        return "orchestrator"


class Stage(Record):
    """An edge's end at a stage."""

    at: Literal["stage"] = "stage"
    node_id: NodeId
    stage_index: Count

    def describe(self) -> str:
        return f"stage {self.stage_index}"


class GgufModelPlan(Record):
    model_id: str
    gguf_source: GgufSource
    num_layers: Size
    hidden_dim: Size
    dtype_family: Literal["float"] = "float"
    dtype_width_bytes: Literal[4] = 4
    max_seq_len: Size
    eos_token_ids: tuple[Count, ...]


class EdgePlan(Record):
    run_id: RunId
    edge_id: Count
    kind: EdgeKind
    producer: Orchestrator | Stage
    consumer: Orchestrator | Stage
    object_spec: ObjectSpec
    ring_spec: RingSpec


class StagePlan(Record):
    run_id: RunId
    stage_index: Count
    stage_count: Count
    node_id: NodeId
    gguf_source: GgufSource
    layer_start: Count
    layer_end_exclusive: Count
    inbound_edges: tuple[Count, ...]
    outbound_edges: tuple[Count, ...]


class RunPlan(Record):
    run_id: RunId
    model: GgufModelPlan
    stages: tuple[StagePlan, ...]
    edges: tuple[EdgePlan, ...]
    max_tokens: Size
    generation: Generation

    def edge(self, edge_id: int) -> EdgePlan:
        return next(edge for edge in self.edges if edge.edge_id == edge_id)

    def edge_of_kind(self, kind: EdgeKind) -> EdgePlan:
        return next(edge for edge in self.edges if edge.kind is kind)


def build_plan(
    *,
    run_id: str,
    model: GgufModelPlan,
    generation: Generation,
    orchestrator_id: str,
    node_ids: Sequence[str],
    ring: RingSpec | None = None,
) -> RunPlan:
    """Cut `model` into len(node_ids) stages and join them; the result is already validated.

    Raises BadStageCount, which says what to use instead, and PlanInvalid.
    """
    count = len(node_ids)
    check_stage_count(count, model.num_layers)
    orchestrator = Orchestrator(node_id=orchestrator_id)
    ends = [Stage(node_id=node_id, stage_index=index) for index, node_id in enumerate(node_ids)]
    wiring: list[tuple[EdgeKind, Orchestrator | Stage, Orchestrator | Stage]] = [
        (EdgeKind.TOKEN_IN, orchestrator, ends[0]),
        *((EdgeKind.ACTIVATION, producer, consumer) for producer, consumer in pairwise(ends)),
        (EdgeKind.TOKEN_OUT, ends[-1], orchestrator),
    ]
    if generation.feedback is Feedback.DIRECT:
        wiring.append((EdgeKind.FEEDBACK, ends[-1], ends[0]))
    edges = tuple(
        EdgePlan(
            run_id=run_id,
            edge_id=edge_id,
            kind=kind,
            producer=producer,
            consumer=consumer,
            object_spec=object_spec(kind, model),
            ring_spec=ring or RingSpec(max_bytes=max(RingSpec().max_bytes, object_spec(kind, model).max_extent)),
        )
        for edge_id, (kind, producer, consumer) in enumerate(wiring)
    )
    stages = []
    for index, node_id in enumerate(node_ids):
        start, end = layer_range(index, count, model.num_layers)
        stages.append(
            StagePlan(
                run_id=run_id,
                stage_index=index,
                stage_count=count,
                node_id=node_id,
                gguf_source=model.gguf_source,
                layer_start=start,
                layer_end_exclusive=end,
                inbound_edges=tuple(e.edge_id for e in edges if e.consumer.node_id == node_id),
                outbound_edges=tuple(e.edge_id for e in edges if e.producer.node_id == node_id),
            )
        )
    plan = RunPlan(
        run_id=run_id,
        model=model,
        stages=tuple(stages),
        edges=edges,
        max_tokens=generation.max_tokens,
        generation=generation,
    )
    validate_plan(plan)
    return plan


def check_stage_count(count: int, num_layers: int) -> None:
    """Raises BadStageCount unless 2 <= count <= num_layers."""
    if count < 2:
        raise BadStageCount(
            f"a chain needs at least 2 stages, not {count}",
            remedy="To run a model in one process use a single-process engine such as llama.cpp; "
            "here use --num-stages 2, with --verify to compare with one process.",
        )
    if count > num_layers:
        raise BadStageCount(
            f"the model has {num_layers} blocks, too few for {count} stages",
            remedy=f"Use --num-stages {num_layers} or less.",
        )


def object_spec(kind: EdgeKind, model: GgufModelPlan) -> ObjectSpec:
    """What an edge of this kind may carry for this model; `max_extent` in bytes."""
    if kind is EdgeKind.ACTIVATION:
        return ObjectSpec(
            payload="hidden",
            hidden_dim=model.hidden_dim,
            width_bytes=model.dtype_width_bytes,
            max_extent=model.max_seq_len * model.hidden_dim * model.dtype_width_bytes,
        )
    positions = model.max_seq_len if kind is EdgeKind.TOKEN_IN else 1
    return ObjectSpec(payload="tokens", width_bytes=TOKEN_BYTES, max_extent=positions * TOKEN_BYTES)


def validate_plan(plan: RunPlan) -> None:
    """Raises PlanInvalid, or BadStageCount, for the first rule of the plan that does not hold."""
    _check_stages(plan)
    _check_edges(plan)
    _require(plan.max_tokens == plan.generation.max_tokens, "it has two limits on the tokens")


def _check_stages(plan: RunPlan) -> None:
    count, layers = len(plan.stages), plan.model.num_layers
    check_stage_count(count, layers)
    _require(len({s.node_id for s in plan.stages}) == count, "two stages have one node id")
    expected_start = 0
    for index, stage in enumerate(plan.stages):
        _require(stage.run_id == plan.run_id, f"stage {index} belongs to another run")
        _require(stage.stage_index == index, f"stage {index} calls itself stage {stage.stage_index}")
        _require(stage.stage_count == count, f"stage {index} believes in {stage.stage_count} stages, not {count}")
        _require(stage.gguf_source == plan.model.gguf_source, f"stage {index} has another model source")
        _require(
            stage.layer_start == expected_start,
            f"stage {index} starts at block {stage.layer_start}, expected {expected_start}",
        )
        _require(stage.layer_end_exclusive > stage.layer_start, f"stage {index} has no block")
        expected_start = stage.layer_end_exclusive
    _require(expected_start == layers, f"the stages end at block {expected_start} of {layers}")
    for index, stage in enumerate(plan.stages):
        start, end = layer_range(index, count, layers)
        _require(
            (stage.layer_start, stage.layer_end_exclusive) == (start, end),
            f"stage {index} has blocks {stage.layer_start}..{stage.layer_end_exclusive}, its share is {start}..{end}",
        )


def _check_edges(plan: RunPlan) -> None:
    _require(len({e.edge_id for e in plan.edges}) == len(plan.edges), "two edges have one id")
    last = len(plan.stages) - 1
    ends = [end for edge in plan.edges for end in (edge.producer, edge.consumer)]
    orchestrators = {end.node_id for end in ends if isinstance(end, Orchestrator)}
    _require(len(orchestrators) < 2, "it has two orchestrators")
    _require(orchestrators.isdisjoint(s.node_id for s in plan.stages), "a stage has the orchestrator's node id")
    found: dict[EdgeKind, list[tuple[int | None, int | None]]] = {kind: [] for kind in EdgeKind}
    for edge in plan.edges:
        _require(edge.run_id == plan.run_id, f"edge {edge.edge_id} belongs to another run")
        for end in (edge.producer, edge.consumer):
            if isinstance(end, Stage):
                _require(
                    end.stage_index <= last and plan.stages[end.stage_index].node_id == end.node_id,
                    f"edge {edge.edge_id} names a node that is not stage {end.stage_index}",
                )
        _require(
            edge.object_spec == object_spec(edge.kind, plan.model),
            f"edge {edge.edge_id} carries objects that are not the model's",
        )
        found[edge.kind].append((_index_of(edge.producer), _index_of(edge.consumer)))
    wanted: dict[EdgeKind, list[tuple[int | None, int | None]]] = {
        EdgeKind.TOKEN_IN: [(None, 0)],
        EdgeKind.ACTIVATION: [(i, i + 1) for i in range(last)],
        EdgeKind.TOKEN_OUT: [(last, None)],
        EdgeKind.FEEDBACK: [(last, 0)] if plan.generation.feedback is Feedback.DIRECT else [],
    }
    for kind, pairs in wanted.items():
        _require(
            sorted(found[kind], key=str) == sorted(pairs, key=str), f"the {kind.value} edges do not join the chain"
        )
    for stage in plan.stages:
        _require(
            stage.inbound_edges == tuple(e.edge_id for e in plan.edges if e.consumer.node_id == stage.node_id)
            and stage.outbound_edges == tuple(e.edge_id for e in plan.edges if e.producer.node_id == stage.node_id),
            f"stage {stage.stage_index} lists edges that are not its own",
        )


def provision_stage(plan: RunPlan, stage_index: int) -> ProvisionStage:
    """The message that sets stage `stage_index` up."""
    stage = plan.stages[stage_index]
    return ProvisionStage(
        run_id=plan.run_id,
        stage_index=stage_index,
        stage_count=stage.stage_count,
        gguf_source=stage.gguf_source,
        layer_start=stage.layer_start,
        layer_end_exclusive=stage.layer_end_exclusive,
        inbound=tuple(inbound_provision(plan.edge(edge_id)) for edge_id in stage.inbound_edges),
        outbound=tuple(outbound_provision(plan.edge(edge_id)) for edge_id in stage.outbound_edges),
        model=StageModelFacts(
            model_id=plan.model.model_id,
            num_layers=plan.model.num_layers,
            hidden_dim=plan.model.hidden_dim,
            dtype_family=plan.model.dtype_family,
            dtype_width_bytes=plan.model.dtype_width_bytes,
            max_seq_len=plan.model.max_seq_len,
        ),
        generation=plan.generation,
    )


def inbound_provision(edge: EdgePlan) -> InboundEdgeProvision:
    """The consumer's half of an edge."""
    return InboundEdgeProvision(
        edge_id=edge.edge_id,
        kind=edge.kind,
        producer_node_id=edge.producer.node_id,
        object_spec=edge.object_spec,
        ring_spec=edge.ring_spec,
    )


def outbound_provision(edge: EdgePlan) -> OutboundEdgeProvision:
    """The producer's half of an edge."""
    return OutboundEdgeProvision(
        edge_id=edge.edge_id,
        kind=edge.kind,
        consumer_node_id=edge.consumer.node_id,
        object_spec=edge.object_spec,
        ring_spec=edge.ring_spec,
    )


def _index_of(end: Orchestrator | Stage) -> int | None:
    return end.stage_index if isinstance(end, Stage) else None


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise PlanInvalid(f"the run plan is wrong: {rule}")
