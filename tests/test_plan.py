"""The run plan: what build_plan makes is valid, and each rule of validate_plan refuses a plan that breaks only it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ppsmoke.errors import BadStageCount, PlanInvalid
from ppsmoke.messages import EdgeKind, Feedback, GgufSource, RingSpec
from ppsmoke.plan import (
    EdgePlan,
    Orchestrator,
    RunPlan,
    Stage,
    build_plan,
    check_stage_count,
    inbound_provision,
    outbound_provision,
    provision_stage,
    validate_plan,
)
from tests.samples import EOS, ORCHESTRATOR, OTHER_RUN, RUN, STRANGER, generation, model, node_id, plan

DIRECT, ORCHESTRATED = Feedback.DIRECT, Feedback.ORCHESTRATOR


def wires(of: RunPlan) -> list[tuple[str, str, str]]:
    return [(edge.kind.value, edge.producer.describe(), edge.consumer.describe()) for edge in of.edges]


def build(node_ids: list[str], **changes: object) -> RunPlan:
    fields = {"run_id": RUN, "model": model(), "generation": generation(), "orchestrator_id": ORCHESTRATOR} | changes
    return build_plan(node_ids=node_ids, **fields)


# ---- what is built ----


def test_direct_feedback_adds_one_edge_from_last_to_first() -> None:
    assert wires(plan(3, DIRECT)) == [
        ("TokenIn", "orchestrator", "stage 0"),
        ("Activation", "stage 0", "stage 1"),
        ("Activation", "stage 1", "stage 2"),
        ("TokenOut", "stage 2", "orchestrator"),
        ("Feedback", "stage 2", "stage 0"),
    ]


def test_orchestrator_feedback_needs_no_further_edge() -> None:
    assert wires(plan(2, ORCHESTRATED)) == [
        ("TokenIn", "orchestrator", "stage 0"),
        ("Activation", "stage 0", "stage 1"),
        ("TokenOut", "stage 1", "orchestrator"),
    ]


@pytest.mark.parametrize("feedback", list(Feedback))
def test_every_cut_of_every_model_gives_a_valid_plan(feedback: Feedback) -> None:
    for layers in (2, 3, 8, 9, 16, 24, 30, 81):
        for stages in range(2, min(layers, 12) + 1):
            made = plan(stages, feedback, layers)
            validate_plan(made)
            owned = [b for s in made.stages for b in range(s.layer_start, s.layer_end_exclusive)]
            assert owned == list(range(layers))
            assert RunPlan.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_the_plan_carries_the_nodes_and_the_run_it_was_made_for() -> None:
    made = plan(4)
    assert [stage.node_id for stage in made.stages] == [node_id(index) for index in range(4)]
    assert {stage.run_id for stage in made.stages} | {edge.run_id for edge in made.edges} == {RUN}
    assert {end.node_id for e in made.edges for end in (e.producer, e.consumer) if end.at == "orchestrator"} == {
        ORCHESTRATOR
    }


def test_edge_ids_do_not_depend_on_who_the_nodes_are() -> None:
    one = build([node_id(0), node_id(1), node_id(2)])
    other = build([node_id(7), node_id(5), node_id(9)], run_id=OTHER_RUN)
    assert [edge.edge_id for edge in one.edges] == [edge.edge_id for edge in other.edges] == [0, 1, 2, 3, 4]


def test_an_activation_may_fill_the_context_and_no_more() -> None:
    made = plan(3)
    spec = made.edge_of_kind(EdgeKind.ACTIVATION).object_spec
    assert spec.max_extent == made.model.max_seq_len * made.model.hidden_dim * made.model.dtype_width_bytes
    assert spec.payload_bytes(made.model.max_seq_len) == spec.max_extent
    assert made.edge_of_kind(EdgeKind.TOKEN_IN).object_spec.max_extent == made.model.max_seq_len * 4
    assert made.edge_of_kind(EdgeKind.TOKEN_OUT).object_spec.max_extent == 4
    assert made.edge_of_kind(EdgeKind.FEEDBACK).object_spec.max_extent == 4


def test_the_default_ring_holds_the_largest_object() -> None:
    made = build([node_id(0), node_id(1)], model=model(hidden_dim=8192, max_seq_len=4096))
    for edge in made.edges:
        assert edge.ring_spec.max_bytes >= edge.object_spec.max_extent


def test_a_ring_given_is_used_for_every_edge() -> None:
    ring = RingSpec(max_objects=2, max_bytes=4096)
    assert {edge.ring_spec for edge in build([node_id(0), node_id(1)], ring=ring).edges} == {ring}


@pytest.mark.parametrize("feedback", list(Feedback))
def test_each_edge_is_provisioned_once_at_each_end(feedback: Feedback) -> None:
    made = plan(4, feedback)
    messages = [provision_stage(made, index) for index in range(4)]
    inbound = [edge for message in messages for edge in message.inbound]
    outbound = [edge for message in messages for edge in message.outbound]
    to_stages = [edge for edge in made.edges if isinstance(edge.consumer, Stage)]
    from_stages = [edge for edge in made.edges if isinstance(edge.producer, Stage)]
    assert sorted(inbound, key=lambda e: e.edge_id) == [inbound_provision(edge) for edge in to_stages]
    assert sorted(outbound, key=lambda e: e.edge_id) == [outbound_provision(edge) for edge in from_stages]


def test_a_provision_names_the_planned_peers() -> None:
    first, middle, last = (provision_stage(plan(3), index) for index in range(3))
    assert [(e.kind, e.producer_node_id) for e in first.inbound] == [
        (EdgeKind.TOKEN_IN, ORCHESTRATOR),
        (EdgeKind.FEEDBACK, node_id(2)),
    ]
    assert [(e.kind, e.producer_node_id) for e in middle.inbound] == [(EdgeKind.ACTIVATION, node_id(0))]
    assert [(e.kind, e.consumer_node_id) for e in last.outbound] == [
        (EdgeKind.TOKEN_OUT, ORCHESTRATOR),
        (EdgeKind.FEEDBACK, node_id(0)),
    ]


def test_all_stages_are_told_the_same_model_facts() -> None:
    made = plan(4)
    messages = [provision_stage(made, index) for index in range(4)]
    assert len({message.model for message in messages}) == 1
    assert len({message.generation for message in messages}) == 1
    facts = messages[0].model
    assert (facts.num_layers, facts.hidden_dim, facts.max_seq_len) == (8, 16, 32)
    assert messages[0].generation.eos_token_ids == (EOS,)


# ---- how many stages ----


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_stages_are_refused_with_what_to_use_instead(count: int) -> None:
    with pytest.raises(BadStageCount, match=f"at least 2 stages, not {count}") as caught:
        build([node_id(index) for index in range(count)])
    assert "--num-stages 2" in (caught.value.remedy or "")
    assert "single-process engine" in (caught.value.remedy or "")


def test_more_stages_than_blocks_are_refused_with_the_most_there_can_be() -> None:
    with pytest.raises(BadStageCount, match="8 blocks, too few for 9 stages") as caught:
        build([node_id(index) for index in range(9)])
    assert "--num-stages 8 or less" in (caught.value.remedy or "")
    check_stage_count(8, 8)


# ---- each rule, broken alone ----


def stage_changed(of: RunPlan, index: int, **changes: object) -> RunPlan:
    stages = [s.replace(**changes) if s.stage_index == index else s for s in of.stages]
    return of.replace(stages=tuple(stages))


def edges_changed(of: RunPlan, change: Callable[[list[EdgePlan]], list[EdgePlan]]) -> RunPlan:
    """Other edges, with the stages' lists kept in line, so that only the wiring is wrong."""
    edges = tuple(change(list(of.edges)))
    stages = tuple(
        stage.replace(
            inbound_edges=tuple(e.edge_id for e in edges if e.consumer.node_id == stage.node_id),
            outbound_edges=tuple(e.edge_id for e in edges if e.producer.node_id == stage.node_id),
        )
        for stage in of.stages
    )
    return of.replace(stages=stages, edges=edges)


def edge_changed(of: RunPlan, edge_id: int, /, **changes: object) -> RunPlan:
    def change(edges: list[EdgePlan]) -> list[EdgePlan]:
        return [e.replace(**changes) if e.edge_id == edge_id else e for e in edges]

    return edges_changed(of, change)


def cut_at(*bounds: int) -> RunPlan:
    """A plan of 8 blocks whose stages have the ranges between these bounds."""
    made = plan(len(bounds) - 1)
    for index in range(len(bounds) - 1):
        made = stage_changed(made, index, layer_start=bounds[index], layer_end_exclusive=bounds[index + 1])
    return made


BROKEN_STAGES = {
    "a gap": (stage_changed(plan(2), 1, layer_start=5), "stage 1 starts at block 5, expected 4"),
    "an overlap": (stage_changed(plan(2), 1, layer_start=3), "stage 1 starts at block 3, expected 4"),
    "blocks missing at the start": (cut_at(1, 4, 8), "stage 0 starts at block 1, expected 0"),
    "blocks missing at the end": (cut_at(0, 4, 7), "the stages end at block 7 of 8"),
    "blocks beyond the model": (cut_at(0, 4, 9), "the stages end at block 9 of 8"),
    "a stage without a block": (cut_at(0, 4, 4, 8), "stage 1 has no block"),
    "a range backwards": (cut_at(0, 4, 3, 8), "stage 1 has no block"),
    "the extra block at the end": (cut_at(0, 2, 5, 8), "stage 0 has blocks 0..2, its share is 0..3"),
    "an uneven cut": (cut_at(0, 5, 8), "stage 0 has blocks 0..5, its share is 0..4"),
    "stages swapped": (
        plan(2).replace(stages=plan(2).stages[::-1]),
        "stage 0 calls itself stage 1",
    ),
    "a wrong index": (stage_changed(plan(3), 1, stage_index=2), "stage 1 calls itself stage 2"),
    "a wrong count": (stage_changed(plan(3), 1, stage_count=4), "stage 1 believes in 4 stages, not 3"),
    "another run": (stage_changed(plan(3), 2, run_id=OTHER_RUN), "stage 2 belongs to another run"),
    "another model": (
        stage_changed(plan(3), 2, gguf_source=GgufSource(kind="file", paths=("other.gguf",))),
        "stage 2 has another model source",
    ),
    "one node twice": (stage_changed(plan(3), 2, node_id=node_id(1)), "two stages have one node id"),
    "one stage": (plan(2).replace(stages=plan(2).stages[:1]), "at least 2 stages, not 1"),
    "more stages than blocks": (
        plan(3).replace(model=model(2)),
        "2 blocks, too few for 3 stages",
    ),
    "an inbound edge forgotten": (stage_changed(plan(3), 0, inbound_edges=(0,)), "stage 0 lists edges"),
    "an inbound edge too many": (stage_changed(plan(3), 1, inbound_edges=(1, 4)), "stage 1 lists edges"),
    "an outbound edge forgotten": (stage_changed(plan(3), 1, outbound_edges=()), "stage 1 lists edges"),
    "in and out exchanged": (
        stage_changed(plan(3), 1, inbound_edges=(2,), outbound_edges=(1,)),
        "stage 1 lists edges",
    ),
    "two limits": (plan(2).replace(max_tokens=6), "two limits"),
}


@pytest.mark.parametrize(("broken", "rule"), BROKEN_STAGES.values(), ids=BROKEN_STAGES.keys())
def test_a_plan_with_one_wrong_stage_is_refused(broken: RunPlan, rule: str) -> None:
    with pytest.raises((PlanInvalid, BadStageCount), match=rule):
        validate_plan(broken)


HUB = Orchestrator(node_id=ORCHESTRATOR)


def at(index: int) -> Stage:
    return Stage(node_id=node_id(index), stage_index=index)


def without(edge_id: int) -> Callable[[list[EdgePlan]], list[EdgePlan]]:
    return lambda edges: [edge for edge in edges if edge.edge_id != edge_id]


def twice(edge_id: int) -> Callable[[list[EdgePlan]], list[EdgePlan]]:
    return lambda edges: [*edges, edges[edge_id].replace(edge_id=9)]


BIG = plan(3).edges[1].object_spec.replace(max_extent=1 << 30)
SMALL = plan(3).edges[1].object_spec.replace(max_extent=64)

# In plan(3): 0 TokenIn, 1 and 2 Activation, 3 TokenOut, 4 Feedback (direct only).
BROKEN_EDGES = {
    "one id twice": (edge_changed(plan(3), 2, edge_id=1), "two edges have one id"),
    "another run": (edge_changed(plan(3), 2, run_id=OTHER_RUN), "edge 2 belongs to another run"),
    "an unknown node": (
        edge_changed(plan(3), 2, consumer=Stage(node_id=STRANGER, stage_index=2)),
        "edge 2 names a node that is not stage 2",
    ),
    "a stage that is not there": (
        edge_changed(plan(3), 2, consumer=Stage(node_id=node_id(3), stage_index=3)),
        "edge 2 names a node that is not stage 3",
    ),
    "another orchestrator": (edge_changed(plan(3), 0, producer=Orchestrator(node_id=STRANGER)), "two orchestrators"),
    "an extent too large": (edge_changed(plan(3), 1, object_spec=BIG), "edge 1 carries objects"),
    "an extent too small": (edge_changed(plan(3), 2, object_spec=SMALL), "edge 2 carries objects"),
    "tokens where rows belong": (
        edge_changed(plan(3), 1, object_spec=plan(3).edges[0].object_spec),
        "edge 1 carries objects",
    ),
    "facts of another model": (plan(3).replace(model=model(hidden_dim=32)), "edge 1 carries objects"),
}


@pytest.mark.parametrize(("broken", "rule"), BROKEN_EDGES.values(), ids=BROKEN_EDGES.keys())
def test_a_plan_with_one_wrong_edge_is_refused(broken: RunPlan, rule: str) -> None:
    with pytest.raises(PlanInvalid, match=rule):
        validate_plan(broken)


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(
    ("edge_id", "ends", "kind"),
    [
        (0, {"producer": HUB, "consumer": at(1)}, "TokenIn"),
        (0, {"producer": at(2), "consumer": at(0)}, "TokenIn"),
        (1, {"producer": at(1), "consumer": at(0)}, "Activation"),
        (1, {"producer": at(0), "consumer": at(2)}, "Activation"),
        (1, {"producer": at(1), "consumer": at(2)}, "Activation"),
        (2, {"producer": at(1), "consumer": at(1)}, "Activation"),
        (2, {"producer": HUB, "consumer": at(2)}, "Activation"),
        (3, {"producer": at(1), "consumer": HUB}, "TokenOut"),
        (3, {"producer": at(2), "consumer": at(0)}, "TokenOut"),
    ],
)
def test_an_edge_between_the_wrong_ends_is_refused(
    edge_id: int, ends: dict[str, object], kind: str, feedback: Feedback
) -> None:
    with pytest.raises(PlanInvalid, match=f"the {kind} edges do not join the chain"):
        validate_plan(edge_changed(plan(3, feedback), edge_id, **ends))


@pytest.mark.parametrize(
    "ends",
    [
        {"producer": at(1), "consumer": at(0)},
        {"producer": at(2), "consumer": at(1)},
        {"producer": at(0), "consumer": at(2)},
        {"producer": HUB, "consumer": at(0)},
        {"producer": at(2), "consumer": HUB},
    ],
)
def test_feedback_between_the_wrong_ends_is_refused(ends: dict[str, object]) -> None:
    with pytest.raises(PlanInvalid, match="the Feedback edges do not join the chain"):
        validate_plan(edge_changed(plan(3), 4, **ends))


@pytest.mark.parametrize("change", [without, twice])
@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(("edge_id", "kind"), [(0, "TokenIn"), (1, "Activation"), (2, "Activation"), (3, "TokenOut")])
def test_every_edge_is_there_exactly_once(
    edge_id: int, kind: str, feedback: Feedback, change: Callable[[int], Callable[[list[EdgePlan]], list[EdgePlan]]]
) -> None:
    with pytest.raises(PlanInvalid, match=f"the {kind} edges do not join the chain"):
        validate_plan(edges_changed(plan(3, feedback), change(edge_id)))


def test_direct_feedback_without_its_edge_is_refused() -> None:
    with pytest.raises(PlanInvalid, match="the Feedback edges"):
        validate_plan(edges_changed(plan(3), without(4)))


def test_orchestrator_feedback_with_a_feedback_edge_is_refused() -> None:
    direct = plan(3)
    other = direct.replace(generation=generation(ORCHESTRATED))
    with pytest.raises(PlanInvalid, match="the Feedback edges"):
        validate_plan(other)


def test_two_endpoints_never_have_one_key() -> None:
    with pytest.raises(PlanInvalid, match="two stages have one node id"):
        build([node_id(0), node_id(1), node_id(0)])
    with pytest.raises(PlanInvalid, match="a stage has the orchestrator's node id"):
        build([node_id(0), ORCHESTRATOR, node_id(2)])
