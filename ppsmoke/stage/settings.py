"""The environment of `pp-gpu-node`: one stage's whole configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ppsmoke.errors import BadNodeEnvironment
from ppsmoke.roles import Role, role_of

ADDRESS_PREFIX = "PP_GPU_NODE_ADDR="
"""What a node prints on standard output before its ticket."""

Seconds = Annotated[float, Field(gt=0, lt=1e9)]
Tickets = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda text: [t.strip() for t in text.split(",") if t.strip()] if isinstance(text, str) else text),
]


def _variable(name: str, about: str) -> Any:
    return Field(alias=name, description=about)


class NodeSettings(BaseModel):
    """Parsed and checked; each field's alias is its variable. Times in seconds."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    stage: Annotated[int, _variable("STAGE", "index of this stage, 0 .. NUM_STAGES - 1"), Field(ge=0)]
    num_stages: Annotated[int, _variable("NUM_STAGES", "stages of the chain, at least 2"), Field(ge=2)]
    seed_addr: Annotated[str, _variable("SEED_ADDR", "ticket of the orchestrator's endpoint (endpointa...)")]
    run_id: Annotated[str, _variable("PP_RUN_ID", "the run's id, 32 hex digits"), Field(pattern=r"^[0-9a-f]{32}$")]
    join_token: Annotated[
        str,
        _variable("PP_JOIN_TOKEN", "the run's secret, hex; proven on every connection, never sent"),
        Field(pattern=r"^([0-9a-f]{2})+$"),
    ]
    model: Annotated[str, _variable("PP_MODEL", "path of the GGUF file (the first part of a split one)")]
    node_key: Annotated[
        str,
        _variable("PP_NODE_KEY", "this node's secret key, 64 hex digits; drawn if not given"),
        Field(pattern=r"^([0-9a-f]{64})?$"),
    ] = ""
    peer_direct: Annotated[
        Tickets, _variable("PEER_DIRECT", "tickets of peers to know from the start, separated by commas")
    ] = ()
    context: Annotated[int, _variable("PP_CONTEXT", "positions of the KV cache"), Field(ge=1)] = 2048
    device: Annotated[str, _variable("PP_DEVICE", "tinygrad device; empty: the first that works")] = ""
    stub: Annotated[bool, _variable("PP_WORKER_STUB", "1: the deterministic test worker; no model is computed")] = False
    lifeline: Annotated[bool, _variable("PP_LIFELINE", "1: end when standard input closes (set by the parent)")] = False
    join_timeout: Annotated[Seconds, _variable("PP_JOIN_TIMEOUT", "to reach and join the orchestrator")] = 30
    ready_timeout: Annotated[Seconds, _variable("PP_READY_TIMEOUT", "for the worker to load and compile")] = 600
    prefill_timeout: Annotated[Seconds, _variable("PP_PREFILL_TIMEOUT", "for one prefill step of the worker")] = 480
    step_timeout: Annotated[Seconds, _variable("PP_STEP_TIMEOUT", "for one decode step of the worker")] = 48
    stop_timeout: Annotated[Seconds, _variable("PP_STOP_TIMEOUT", "for the worker to end before it is killed")] = 2
    silence_limit: Annotated[Seconds, _variable("PP_SILENCE_LIMIT", "silence after which a peer counts as lost")] = 10

    @model_validator(mode="after")
    def _stage_in_chain(self) -> Self:
        if self.stage >= self.num_stages:
            raise ValueError(f"STAGE={self.stage} is not one of 0 .. {self.num_stages - 1}")
        return self

    @property
    def role(self) -> Role:
        return role_of(self.stage, self.num_stages)


def describe_variables() -> list[tuple[str, str, str]]:
    """(variable, meaning, default or 'required'), in order, for `--help`."""
    return [
        (str(item.alias), item.description or "", "required" if item.is_required() else _show(item.default))
        for item in NodeSettings.model_fields.values()
    ]


def parse_settings(environ: Mapping[str, str]) -> NodeSettings:
    """Raises BadNodeEnvironment that names the variable and what it should be."""
    known = {str(item.alias) for item in NodeSettings.model_fields.values()}
    given = {name: value.strip() for name, value in environ.items() if name in known and value.strip()}
    try:
        return NodeSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        variable = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing":
            about = next(about for name, about, _ in describe_variables() if name == variable)
            what = f"{variable} is not set: {about}"
        elif variable == "PP_NODE_KEY":
            what = f"{variable}: expected 64 hex digits"
        elif variable == "PP_JOIN_TOKEN":
            what = f"{variable}: expected an even number of hex digits"
        elif variable:
            what = f"{variable}={first['input']!r}: {first['msg']}"
        else:
            what = str(first["msg"]).removeprefix("Value error, ")
        raise BadNodeEnvironment(what, remedy="See pp-gpu-node --help for all variables.") from None


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value) if value not in ("", ()) else "-"
