"""What can be known before anything is spawned: the plan in words, and whether the stages fit into memory."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from ppsmoke.errors import EnvironmentFault, NotEnoughMemory
from ppsmoke.figures import size
from ppsmoke.gguf_header import TensorTable
from ppsmoke.messages import EdgeKind
from ppsmoke.model_facts import ModelFacts
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.plan import EdgePlan, RunPlan, build_plan, check_stage_count
from ppsmoke.process_limits import check_process_limits
from ppsmoke.request import model_plan
from ppsmoke.roles import layer_ranges, role_of
from ppsmoke.stage_memory import StageMemory, stage_memory
from ppsmoke.wording import columns, counted, shown_model

_CGROUP = Path("/sys/fs/cgroup")


def stage_memories(options: RunOptions) -> list[StageMemory]:
    """The memory of each stage of this run, in stage order."""
    ranges = layer_ranges(options.num_stages, options.model.num_layers)
    return [options.model.stage_memory(start, end, options.context) for start, end in ranges]


def check_announced_model(num_stages: int, context: int) -> Callable[[ModelFacts, TensorTable], None]:
    """Refuses by its headers a model that is not here yet: too few blocks for the stages, or not enough memory."""

    def judge(facts: ModelFacts, table: TensorTable) -> None:
        check_stage_count(num_stages, facts.num_layers)
        ranges = layer_ranges(num_stages, facts.num_layers)
        check_memory([stage_memory(table, facts, start, end, context) for start, end in ranges], available_memory())

    return judge


def check_memory(memories: Sequence[StageMemory], free: int) -> None:
    """Raises NotEnoughMemory that names the first stage that does not fit into `free` bytes behind those before it."""
    needed = 0
    for index, memory in enumerate(memories):
        needed += memory.total_bytes
        if needed > free:
            raise NotEnoughMemory(
                f"stage {index} does not fit: {_stages_to(index)} {size(needed)} of memory, {size(free)} are free",
                remedy="Use a smaller model or a lower --context, or free some memory.",
                stage=index,
                phase="plan",
            )


def _stages_to(index: int) -> str:
    return "it needs" if index == 0 else f"stages 0 to {index} need"


def check_machine(options: RunOptions, *, loopback: bool) -> None:
    """Raises EnvironmentFault, NotEnoughMemory where this machine cannot run all these stages. `loopback`: they are to
    meet there."""
    check_memory(stage_memories(options), available_memory())
    check_process_limits(options.num_stages)
    if loopback:
        check_loopback()


def check_loopback() -> None:
    """Raises EnvironmentFault where this machine cannot reach itself, as in a network namespace that nobody set up:
    its nodes would try until the deadline for joining. Sends nothing."""
    why = ""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
        except OSError as error:
            why = why or error.strerror or str(error)
        else:
            return
    raise EnvironmentFault(
        f"this machine cannot reach itself at 127.0.0.1 or ::1: {why}",
        remedy="Bring its loopback interface up: ip link set lo up.",
    )


def available_memory() -> int:
    """Bytes this process may still take: the machine's, or what its control group leaves if that is less."""
    free = int(psutil.virtual_memory().available)
    limit, used = _cgroup_bytes("memory.max"), _cgroup_bytes("memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def describe_plan(options: RunOptions, *, free: int | None) -> list[str]:
    """The run plan as text: stages with their blocks and bytes, edges, the size of an activation.

    `free`: bytes of memory that this machine has for all stages; None when they run on machines of their own."""
    stages = options.num_stages
    plan = _plan(options)
    memories = stage_memories(options)
    rows = [("stage", "role", "blocks", "weights in file", "weights in memory", "KV cache", "in all")]
    for stage, memory in zip(plan.stages, memories, strict=True):
        rows.append(
            (
                str(stage.stage_index),
                role_of(stage.stage_index, stages).value,
                f"{stage.layer_start}-{stage.layer_end_exclusive - 1}",
                size(memory.file_bytes),
                size(memory.weight_bytes),
                size(memory.kv_bytes),
                size(memory.total_bytes),
            )
        )
    total = sum(memory.total_bytes for memory in memories)
    return [
        f"model        {shown_model(plan.model.model_id)}: {plan.model.num_layers} blocks, "
        f"hidden size {plan.model.hidden_dim}",
        f"request      {counted(len(options.prompt_tokens), 'prompt token')}, at most {plan.max_tokens} new, "
        f"context {options.context}",
        f"memory       {size(total)}" + ("" if free is None else f" of {size(free)} free"),
        "",
        *columns(rows, right=lambda column: column > 2),
        "",
        *columns([("edge", "kind", "from", "to", "limit of one object"), *map(_edge_row, plan.edges)]),
        "",
        _activation_line(plan),
    ]


def plan_json(options: RunOptions) -> dict[str, Any]:
    """The run plan as an object: `plan`, and `memory` in bytes of each stage; node ids are placeholders."""
    memories = [{**asdict(memory), "total_bytes": memory.total_bytes} for memory in stage_memories(options)]
    return {"plan": _plan(options).to_json(), "memory": memories}


def _plan(options: RunOptions) -> RunPlan:
    return build_plan(
        run_id=options.run_id,
        model=model_plan(options.model, options.context),
        generation=options.generation,
        orchestrator_id=f"{options.num_stages:064x}",
        node_ids=[f"{index:064x}" for index in range(options.num_stages)],
    )


def _edge_row(edge: EdgePlan) -> tuple[str, ...]:
    return (
        str(edge.edge_id),
        edge.kind.value,
        edge.producer.describe(),
        edge.consumer.describe(),
        size(edge.object_spec.max_extent),
    )


def _activation_line(plan: RunPlan) -> str:
    spec = plan.edge_of_kind(EdgeKind.ACTIVATION).object_spec
    return f"activation   {size(spec.payload_bytes(1))} a token (float32, hidden size {spec.hidden_dim})"
