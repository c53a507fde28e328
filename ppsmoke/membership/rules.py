"""Who may be a member of a run, and who may hold which name. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ppsmoke.membership.api import ENTRY_NAME, EXIT_NAME, ORCHESTRATOR_NAME, stage_name
from ppsmoke.membership.swim import AdmitRule, NameRule, Replaced


def name_rule(stage_count: int) -> NameRule:
    """Every name of a run has one rightful holder: the stage of that number, the first, the last, the orchestrator."""

    def may_hold(name: str, stage_index: int | None) -> str | None:
        if name == ORCHESTRATOR_NAME:
            return None if stage_index is None else f"{name} is the orchestrator's"
        if stage_index is None:
            return f"{name} is for stages"
        if name.startswith("pp-stage-"):
            return None if name == stage_name(stage_index) else f"{name} is not for stage {stage_index}"
        rightful = {ENTRY_NAME: 0, EXIT_NAME: stage_count - 1}.get(name)
        if rightful is None:
            return f"{name} is no name of this run"
        return None if stage_index == rightful else f"{name} is for stage {rightful}, not stage {stage_index}"

    return may_hold


def admit_rule(orchestrator_id: str, stage_count: int, planned: Mapping[str, int] | None) -> AdmitRule:
    """`planned`: the stage index of every node id, where the plan is known; else nodes are trusted in that. One that
    was replaced has a negative index.

    Whoever has a link has proven the run's token; this is about what it claims to be.
    """

    def admit(node_id: str, stage_index: int | None) -> str | None:
        if node_id == orchestrator_id:
            return None if stage_index is None else "the orchestrator is no stage"
        if stage_index is None:
            return "it is not the orchestrator, and no stage either"
        if stage_index >= stage_count:
            return f"there is no stage {stage_index} in a chain of {stage_count}"
        if planned is None:
            return None
        if node_id not in planned:
            return "this node is not in the run's plan"
        if planned[node_id] < 0:
            return Replaced(f"another node is stage {stage_index} now")
        if planned[node_id] != stage_index:
            return f"the plan has this node as stage {planned[node_id]}, not {stage_index}"
        return None

    return admit
