"""Whether a loaded object is the one that a stage may execute next. Pure."""

from __future__ import annotations

from ppsmoke.messages import EdgeKind, Feedback
from ppsmoke.stage.stage_state import Handle, StageState


def must_wait(state: StageState, handle: Handle) -> bool:
    """Whether it is the next request's prompt while the end of the former, which is on its way, has not come."""
    former = state.next
    if handle.sequence > 0 or former.request_id in (None, handle.request_id) or former.over or former.part:
        return False
    provision = state.provision
    assert provision is not None
    fed_back = any(edge.edge_id != handle.edge_id and edge.kind is EdgeKind.FEEDBACK for edge in provision.inbound)
    is_next = handle.part == 0 and handle.request_id not in state.ended_requests
    return fed_back and (is_next or any(other.request_id == handle.request_id for other in state.loaded))


def out_of_order(state: StageState, handle: Handle) -> str | None:
    """Why it is not that one, or None."""
    assert state.provision is not None
    edges = {edge.edge_id: edge.kind for edge in state.provision.inbound}
    kind = edges.get(handle.edge_id)
    if kind is None:
        return f"{handle.describe()} came on edge {handle.edge_id}, which is no inbound edge of this stage"
    direct = state.provision.generation.feedback is Feedback.DIRECT
    if kind is EdgeKind.TOKEN_IN and direct and handle.sequence > 0:
        return f"{handle.describe()} came from the orchestrator although the last stage feeds tokens back"
    if kind is EdgeKind.FEEDBACK and handle.sequence == 0:
        return f"{handle.describe()} came from the last stage; a prompt comes from the orchestrator"
    if handle.sequence > 0 and not handle.last_part:
        return f"{handle.describe()} is a part of a decode step; only a prompt travels in parts"
    following = state.next
    if handle.request_id == following.request_id and following.over:
        return f"{handle.describe()} came after the end of its request"
    if handle.request_id in state.ended_requests:
        return f"{handle.describe()} came after another request had begun"
    if handle.request_id != following.request_id and (handle.sequence, handle.part) == (0, 0) and not handle.done:
        if following.part == 0:
            return None
        return f"{handle.describe()} came in the middle of the prompt of request {str(following.request_id)[:8]}"
    if (handle.request_id, handle.sequence, handle.part) != (following.request_id, following.sequence, following.part):
        return f"{handle.describe()} is out of order, expected sequence {following.sequence} part {following.part}"
    return None
