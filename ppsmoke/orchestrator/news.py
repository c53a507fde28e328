"""What the stages tell the orchestrator, checked against the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ppsmoke.errors import PpError, StageFaulted, error_class
from ppsmoke.messages import (
    OrchestratorMessage,
    StageFault,
    StageMessage,
    decode_message,
)
from ppsmoke.plan import RunPlan


class NotNews(Exception):
    """A message that is dropped; the text says why."""


def stage_news(plan: RunPlan, node_id: str, body: Mapping[str, Any]) -> StageMessage:
    """The message, when it is one that this node may send about its own stage of this run.

    Raises NotNews, and MalformedRequest for what is no message at all: a stage of this version does not send such.
    """
    message = decode_message(body)
    if isinstance(message, OrchestratorMessage):
        raise NotNews(f"{message.type} is for stages")
    index = message.stage_index
    if message.run_id != plan.run_id:
        raise NotNews(f"{message.type} of another run")
    if index >= len(plan.stages) or plan.stages[index].node_id != node_id or message.node_id != node_id:
        raise NotNews(f"{message.type} about stage {index}, which is not its own")
    return message


def stage_fault_error(message: StageFault, node_log: Sequence[str]) -> PpError:
    """The error a StageFault stands for, of the class its code names, with the stage in it.

    `node_log`: the last lines of the node's own log, for a fault that brings none with it.
    """
    kind = error_class(message.code) or StageFaulted
    reason = message.reason
    if f"stage {message.stage_index}" not in reason:
        reason = f"stage {message.stage_index}: {reason}"
    return kind(
        reason,
        stage=message.stage_index,
        log_tail=message.log_tail or node_log,
        remedy=message.remedy or None,
        phase=message.phase or None,
    )


def waiting_line(stages: Iterable[int], doing: Mapping[int, str], otherwise: Iterable[str]) -> str:
    """'waiting for stages 0, 1: loading; stage 2: compiling', or for what else is awaited when no stage is."""
    by_doing: dict[str, list[str]] = {}
    for index in sorted(stages):
        by_doing.setdefault(doing.get(index, "preparing"), []).append(str(index))
    parts = [f"stage{'s' if indices[1:] else ''} {', '.join(indices)}: {what}" for what, indices in by_doing.items()]
    return "waiting for " + "; ".join(parts or otherwise)
