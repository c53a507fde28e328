from __future__ import annotations

import pytest

from ppsmoke.membership import ENTRY_NAME, EXIT_NAME, ORCHESTRATOR_NAME, stage_name
from ppsmoke.membership.rules import admit_rule, name_rule

SEED, A, B = ("0" * 64, "a" * 64, "b" * 64)


@pytest.mark.parametrize(
    ("index", "name", "why"),
    [
        (1, stage_name(1), None),
        (0, ENTRY_NAME, None),
        (2, EXIT_NAME, None),
        (None, ORCHESTRATOR_NAME, None),
        (0, stage_name(1), "pp-stage-1 is not for stage 0"),
        (1, stage_name(11), "pp-stage-11 is not for stage 1"),
        (None, stage_name(0), "pp-stage-0 is for stages"),
        (1, ENTRY_NAME, "pp-entry is for stage 0, not stage 1"),
        (1, EXIT_NAME, "pp-exit is for stage 2, not stage 1"),
        (None, EXIT_NAME, "pp-exit is for stages"),
        (0, ORCHESTRATOR_NAME, "pp-orchestrator is the orchestrator's"),
        (0, "something-else", "something-else is no name of this run"),
    ],
)
def test_a_name_goes_only_to_whom_it_belongs(index: int | None, name: str, why: str | None) -> None:
    assert name_rule(3)(name, index) == why


@pytest.mark.parametrize(
    ("node", "index", "why"),
    [
        (SEED, None, None),
        (A, 0, None),
        (B, 1, None),
        (SEED, 0, "the orchestrator is no stage"),
        (A, None, "it is not the orchestrator, and no stage either"),
        (A, 7, "there is no stage 7 in a chain of 3"),
        (A, 1, "the plan has this node as stage 0, not 1"),
        ("c" * 64, 1, "another node is stage 1 now"),
        ("f" * 64, 1, "this node is not in the run's plan"),
    ],
)
def test_with_a_plan_a_member_is_what_the_plan_says(node: str, index: int | None, why: str | None) -> None:
    assert admit_rule(SEED, 3, {A: 0, B: 1, "c" * 64: -1})(node, index) == why


def test_without_a_plan_a_node_is_trusted_to_know_its_stage_but_is_no_second_orchestrator() -> None:
    admit = admit_rule(SEED, 3, None)
    assert admit(A, 2) is None
    assert admit(A, None) is not None
    assert admit(A, 3) is not None
