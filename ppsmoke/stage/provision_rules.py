"""Who may provision a stage, and with what. Pure."""

from __future__ import annotations

from ppsmoke.messages import EdgeKind, Feedback, ProvisionStage
from ppsmoke.roles import Role
from ppsmoke.stage.stage_state import Phase, StageState


def refusal_of_provision(state: StageState, sender: str, message: ProvisionStage) -> str | None:
    """Why a ProvisionStage is not acted upon, or None."""
    if sender != state.orchestrator_id:
        return "provisioning is the orchestrator's alone"
    if message.run_id in state.ended_runs:
        return f"run {message.run_id[:8]} was stopped here before"
    if state.phase not in (Phase.UNPROVISIONED, Phase.STOPPED):
        return f"run {state.run_id[:8]} is active here ({state.phase.value}) and was not stopped"
    if message.run_id != state.expected_run_id:
        return f"run {message.run_id[:8]} is not the run this node was started for"
    if (message.stage_index, message.stage_count) != (state.stage_index, state.stage_count):
        return (
            f"this node is stage {state.stage_index} of {state.stage_count}, "
            f"not {message.stage_index} of {message.stage_count}"
        )
    if not 0 <= message.layer_start < message.layer_end_exclusive <= message.model.num_layers:
        return f"blocks {message.layer_start}..{message.layer_end_exclusive} are no range of {message.model.num_layers}"
    ends = (message.layer_start == 0, message.layer_end_exclusive == message.model.num_layers)
    if ends != (state.role is Role.FIRST, state.role is Role.LAST):
        return (
            f"blocks {message.layer_start}..{message.layer_end_exclusive} of {message.model.num_layers} "
            f"are not those of a {state.role.value} stage"
        )
    return _refusal_of_edges(state, message)


def _refusal_of_edges(state: StageState, message: ProvisionStage) -> str | None:
    role = state.role
    direct = message.generation.feedback is Feedback.DIRECT
    inbound = sorted(edge.kind.value for edge in message.inbound)
    outbound = sorted(edge.kind.value for edge in message.outbound)
    wanted_in = {
        Role.FIRST: [EdgeKind.FEEDBACK, EdgeKind.TOKEN_IN] if direct else [EdgeKind.TOKEN_IN],
        Role.MIDDLE: [EdgeKind.ACTIVATION],
        Role.LAST: [EdgeKind.ACTIVATION],
    }[role]
    wanted_out = {
        Role.FIRST: [EdgeKind.ACTIVATION],
        Role.MIDDLE: [EdgeKind.ACTIVATION],
        Role.LAST: [EdgeKind.FEEDBACK, EdgeKind.TOKEN_OUT] if direct else [EdgeKind.TOKEN_OUT],
    }[role]
    if inbound != sorted(kind.value for kind in wanted_in) or outbound != sorted(kind.value for kind in wanted_out):
        return f"a {role.value} stage cannot be wired with {inbound} in and {outbound} out"
    if len(set(message.edge_ids)) != len(message.edge_ids):
        return "two edges of this stage have one id"
    return None
