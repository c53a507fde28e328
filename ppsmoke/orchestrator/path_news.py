"""What a run says of connections that were lost and whose edges went on over others."""

from __future__ import annotations

from ppsmoke.figures import elapsed, in_milliseconds
from ppsmoke.messages import EdgeResumed
from ppsmoke.orchestrator.news import NotNews
from ppsmoke.orchestrator.options import View
from ppsmoke.plan import EdgePlan, Orchestrator, RunPlan, Stage
from ppsmoke.run_events import PathChanged
from ppsmoke.transport.link import Outage


def tell_resumed(view: View, plan: RunPlan, message: EdgeResumed) -> None:
    """A stage's word. Raises NotNews for an edge that is not one of its own."""
    edge = next((edge for edge in plan.edges if edge.edge_id == message.edge_id), None)
    if edge is None or _stage(edge.producer) != message.stage_index:
        raise NotNews(f"{message.type} about edge {message.edge_id}, which is not its own")
    tell_outage(view, edge, Outage(message.stall_s, message.before, message.after))


def tell_outage(view: View, edge: EdgePlan, outage: Outage) -> None:
    """A line for who watches, and the event."""
    ends = f"{edge.producer.describe()} -> {edge.consumer.describe()}"
    after = elapsed(outage.stall_s) if outage.stall_s >= 0.1 else in_milliseconds(outage.stall_s)
    view.line(f"{ends}: connection lost, resumed after {after}")
    source, target = _stage(edge.producer), _stage(edge.consumer)
    view.happened(PathChanged(source, target, outage.before, outage.after, outage.stall_s))


def _stage(end: Orchestrator | Stage) -> int | None:
    return end.stage_index if isinstance(end, Stage) else None
