"""Valid things for tests to start from: a model, a plan, a provision, an object."""

from __future__ import annotations

from ppsmoke.messages import Feedback, Generation, GgufSource, ProvisionStage
from ppsmoke.objects import StreamObject, token_payload
from ppsmoke.plan import GgufModelPlan, RunPlan, build_plan, provision_stage

RUN = "ab" * 16
OTHER_RUN = "cd" * 16
REQUEST = "11" * 16
OTHER_REQUEST = "22" * 16
ORCHESTRATOR = "0f" * 32
STRANGER = "ee" * 32
EOS = 0


def node_id(index: int) -> str:
    return f"{index + 1:064x}"


def model(layers: int = 8, **changes: object) -> GgufModelPlan:
    source = GgufSource(kind="file", paths=("model.gguf",))
    fields = {"num_layers": layers, "hidden_dim": 16, "max_seq_len": 32, "eos_token_ids": (EOS,)} | changes
    return GgufModelPlan(model_id="tiny", gguf_source=source, **fields)


def generation(feedback: Feedback = Feedback.DIRECT, max_tokens: int = 5, **changes: object) -> Generation:
    return Generation(max_tokens=max_tokens, eos_token_ids=(EOS,), feedback=feedback, **changes)


def plan(stages: int = 3, feedback: Feedback = Feedback.DIRECT, layers: int = 8, max_tokens: int = 5) -> RunPlan:
    return build_plan(
        run_id=RUN,
        model=model(layers),
        generation=generation(feedback, max_tokens),
        orchestrator_id=ORCHESTRATOR,
        node_ids=[node_id(index) for index in range(stages)],
    )


def provision(index: int = 0, stages: int = 3, feedback: Feedback = Feedback.DIRECT) -> ProvisionStage:
    return provision_stage(plan(stages, feedback), index)


def token_object(*tokens: int, sequence: int = 0, **changes: object) -> StreamObject:
    fields = {"position": 0, "is_prefill": sequence == 0, "seq_len": len(tokens)} | changes
    return StreamObject(edge_id=0, request_id=REQUEST, sequence=sequence, payload=token_payload(tokens), **fields)
