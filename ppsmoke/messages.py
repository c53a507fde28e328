"""The control plane's messages and the records they carry: validated on arrival, JSON on the wire.

Only the orchestrator sends an `OrchestratorMessage`; only stages send the rest.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum
from math import ulp
from typing import Annotated, Any, Literal

from ppsmoke.errors import MalformedRequest
from ppsmoke.paths.watch import PathKind
from ppsmoke.record import Between, Matching, Record, RecordRefused, one_of

CONTROL_CHANNEL = "control"

NodeId = Annotated[str, Matching(re.compile(r"[0-9a-f]{64}"), "64 hex digits")]
Digest = Annotated[str, Matching(re.compile(r"[0-9a-f]{64}"), "64 hex digits")]
NodeKey = Annotated[str, Matching(re.compile(r"[0-9a-f]{64}"), "64 hex digits")]
RunId = Annotated[str, Matching(re.compile(r"[0-9a-f]{32}"), "32 hex digits")]
Count = Annotated[int, Between(0, 2**31 - 1)]
Size = Annotated[int, Between(1, 2**53 - 1)]
Amount = Annotated[int, Between(0, 2**53 - 1)]
StageCount = Annotated[int, Between(2, 2**16 - 1)]
Timings = dict[str, float]


class EdgeKind(StrEnum):
    TOKEN_IN = "TokenIn"
    ACTIVATION = "Activation"
    TOKEN_OUT = "TokenOut"
    FEEDBACK = "Feedback"


class Feedback(StrEnum):
    """Who feeds token k back to stage 0: Last itself, or the orchestrator after it consumed token k."""

    DIRECT = "direct"
    ORCHESTRATOR = "orchestrator"


class ObjectSpec(Record):
    """What an edge may carry.

    `payload` tokens: int32 ids. `payload` hidden: rows of `hidden_dim` values, `width_bytes` each.
    `max_extent`: most payload bytes one object may have; an object over it faults the edge.
    """

    payload: Literal["tokens", "hidden"]
    hidden_dim: Count = 0
    width_bytes: Count = 4
    max_extent: Size

    def payload_bytes(self, seq_len: int) -> int:
        """Bytes that `seq_len` tokens or rows take."""
        return seq_len * self.width_bytes * (self.hidden_dim if self.payload == "hidden" else 1)


class RingSpec(Record):
    """Bounds of the buffer at each end of an edge; full means the producer waits."""

    max_objects: Size = 8
    max_bytes: Size = 8 << 20


class GgufSource(Record):
    """Where a stage finds the model: a whole file, the parts of a split collection, or a cache key."""

    kind: Literal["file", "split", "cache"]
    paths: tuple[str, ...] = ()
    key: str = ""


class StageModelFacts(Record):
    """What all stages must agree on; facts that disagree with the GGUF a stage reads are a StageFault."""

    model_id: str
    num_layers: Size
    hidden_dim: Size
    dtype_family: Literal["float"] = "float"
    dtype_width_bytes: Literal[4] = 4
    max_seq_len: Size


class Generation(Record):
    """How the last stage picks tokens and when the run ends."""

    max_tokens: Size
    eos_token_ids: tuple[Count, ...]
    feedback: Feedback = Feedback.DIRECT
    temperature: Annotated[float, Between(0.0, 1e6)] = 0.0
    top_p: Annotated[float, Between(ulp(0.0), 1.0)] = 1.0
    sample_seed: Annotated[int, Between(0, 2**63 - 1)] = 0


class InboundEdgeProvision(Record):
    edge_id: Count
    kind: EdgeKind
    producer_node_id: NodeId
    object_spec: ObjectSpec
    ring_spec: RingSpec


class OutboundEdgeProvision(Record):
    edge_id: Count
    kind: EdgeKind
    consumer_node_id: NodeId
    object_spec: ObjectSpec
    ring_spec: RingSpec


class ProvisionStage(Record):
    """`probe_bytes`: how much to send over each outbound edge's connection to see what it carries; 0: nothing.
    `warm_up_bytes`: how much then to send over those of activations whose round trip is long, so that the prompt finds
    a connection that carries it at once.
    """

    type: Literal["ProvisionStage"] = "ProvisionStage"
    run_id: RunId
    stage_index: Count
    stage_count: StageCount
    gguf_source: GgufSource
    layer_start: Count
    layer_end_exclusive: Count
    inbound: tuple[InboundEdgeProvision, ...]
    outbound: tuple[OutboundEdgeProvision, ...]
    model: StageModelFacts
    generation: Generation
    probe_bytes: Count = 0
    warm_up_bytes: Count = 0

    @property
    def edge_ids(self) -> list[int]:
        """Ids of all edges that end here."""
        return [edge.edge_id for edge in self.inbound] + [edge.edge_id for edge in self.outbound]


class StopRun(Record):
    type: Literal["StopRun"] = "StopRun"
    run_id: RunId
    reason: str


class StageReady(Record):
    """`timings`: seconds by phase (load, compile, prepare), as the stage measured them."""

    type: Literal["StageReady"] = "StageReady"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    device: str = ""
    timings: Timings = field(default_factory=dict)


class StageFault(Record):
    """`code`, `log_tail`, `remedy` and `phase` are those of the error behind it."""

    type: Literal["StageFault"] = "StageFault"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    reason: str
    code: str = "stage_faulted"
    log_tail: tuple[str, ...] = ()
    remedy: str = ""
    phase: str = ""


class StageStopped(Record):
    """`timings`: per-step seconds summed up by the stage (prefill, decode p50/p99, hop), for the report."""

    type: Literal["StageStopped"] = "StageStopped"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    timings: Timings = field(default_factory=dict)


class StageProgress(Record):
    """Optional news for the person watching: what the stage is doing now, `phase` in words.

    `state`: one of StageState's values, where it is one; then `done` of `total` in `unit`s, a total of 0 where that is
    not known.
    """

    type: Literal["StageProgress"] = "StageProgress"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    phase: str
    state: str = ""
    done: Amount = 0
    total: Amount = 0
    unit: Literal["", "bytes", "blocks", "kernels"] = ""


ORCHESTRATOR_TARGET = -1
Target = Annotated[int, Between(ORCHESTRATOR_TARGET, 2**31 - 1)]
"""The stage at the other end, or the orchestrator."""
Measure = Annotated[float, Between(0.0, 1e15)]


class EdgeReport(Record):
    """The way from this stage to the consumer of one of its edges, measured; or `trouble`, why it could not be.

    `bytes_per_s` is that of `probe_bytes`; 0 of both where nothing was sent.
    """

    type: Literal["EdgeReport"] = "EdgeReport"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    target: Target
    path: PathKind = "relay"
    round_trip_s: Measure = 0.0
    bytes_per_s: Measure = 0.0
    probe_bytes: Count = 0
    trouble: str = ""


class PathReport(Record):
    """The link from this stage to the consumer of one of its edges goes another way now."""

    type: Literal["PathReport"] = "PathReport"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    target: Target
    before: PathKind
    after: PathKind


class EdgeResumed(Record):
    """The connection under one of the stage's outbound edges was lost; after `stall_s` seconds in which nothing passed
    the edge goes on over another one. `before`, `after`: what paths they took, "none" where that is not known."""

    type: Literal["EdgeResumed"] = "EdgeResumed"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    edge_id: Count
    stall_s: Measure
    before: Literal["direct", "relay", "none"]
    after: Literal["direct", "relay", "none"]


class PauseRun(Record):
    """The orchestrator's process is about to be stopped (Ctrl-Z): its silence means nothing until a ResumeRun."""

    type: Literal["PauseRun"] = "PauseRun"
    run_id: RunId


class ResumeRun(Record):
    type: Literal["ResumeRun"] = "ResumeRun"
    run_id: RunId


class StagePaused(Record):
    """The answer to a PauseRun."""

    type: Literal["StagePaused"] = "StagePaused"
    run_id: RunId
    stage_index: Count
    node_id: NodeId


class ClockProbe(Record):
    """What does your clock say? `sent`: monotonic seconds of the orchestrator."""

    type: Literal["ClockProbe"] = "ClockProbe"
    run_id: RunId
    sent: float


class ClockReply(Record):
    """`sent` as in the probe; when it was `received` and `replied`, in monotonic seconds of the stage's machine."""

    type: Literal["ClockReply"] = "ClockReply"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    sent: float
    received: float
    replied: float


class StageRecords(Record):
    """What a stage recorded since the last such message, for the run's directory; see stage.recording.

    Times are monotonic seconds of the stage's machine, `sent` among them. `steps` are rows of those `requests`, see
    step_rows; each of `events` is an object as a line of events.jsonl. `steps_dropped`, `events_dropped`: how many were
    kept by nobody, so far.
    """

    type: Literal["StageRecords"] = "StageRecords"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    sent: float
    requests: tuple[RunId, ...] = ()
    steps: str = ""
    events: tuple[str, ...] = ()
    steps_dropped: Count = 0
    events_dropped: Count = 0


class FetchCode(Record):
    """Fetch a wheel that the orchestrator offers as `file`, with this `sha256`, and try it, beside whatever goes on.

    `folder`: where to unpack it; empty: the node's own place.
    """

    type: Literal["FetchCode"] = "FetchCode"
    run_id: RunId
    file: str
    sha256: Digest
    folder: str = ""


class CodeFetched(Record):
    """The wheel of this `sha256` can take the node's place; or it cannot, with a `refusal` that says why."""

    type: Literal["CodeFetched"] = "CodeFetched"
    run_id: RunId
    stage_index: Count
    node_id: NodeId
    sha256: Digest
    refusal: str = ""


class RestartNode(Record):
    """As `StopRun`; then the code that was fetched takes the node's place, as another node: one with `node_key`."""

    type: Literal["RestartNode"] = "RestartNode"
    run_id: RunId
    sha256: Digest
    node_key: NodeKey = field(repr=False)


StageMessage = (
    StageReady
    | StageFault
    | StageStopped
    | StageProgress
    | EdgeReport
    | PathReport
    | EdgeResumed
    | StagePaused
    | ClockReply
    | StageRecords
    | CodeFetched
)
OrchestratorMessage = ProvisionStage | StopRun | PauseRun | ResumeRun | ClockProbe | FetchCode | RestartNode
ControlMessage = OrchestratorMessage | StageMessage


def encode_message(message: ControlMessage) -> dict[str, Any]:
    """The JSON object of a message."""
    return message.to_json()


def decode_message(body: object) -> ControlMessage:
    """The message a JSON object stands for; raises MalformedRequest that names the first wrong field."""
    try:
        message: ControlMessage = one_of(ControlMessage, body)
    except RecordRefused as refused:
        place = refused.place or "message"
        raise MalformedRequest(f"control message refused: {place[:200]!r}: {refused.reason[:200]}") from None
    return message
