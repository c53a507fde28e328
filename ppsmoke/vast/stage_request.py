"""What each rented machine is asked to be: the create requests of a run's stages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ppsmoke.errors import UsageError
from ppsmoke.stage.settings import MAPPED_UDP_PORT
from ppsmoke.vast.records import CreateRequest
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.vast.start_script import LONG_ENTRIES, start_script

DEFAULT_IMAGE = "python:3.12-slim-bookworm"
DEFAULT_IMAGE_GB = 0.05
"""Compressed. It asks for no CUDA version of its own; the host's runtime brings the driver's libraries in."""

_UDP_PORT = {f"-p {MAPPED_UDP_PORT}:{MAPPED_UDP_PORT}/udp": "1", "PP_UDP_PORT": str(MAPPED_UDP_PORT)}
"""Ports ride in the environment of a create call. The service chooses the public number and tells the container."""

_ENTRY_CHARS = 250  # the service states 256 for an entry
_NEVER = frozenset({"PEER_DIRECT", "PP_LIFELINE", "VAST_API_KEY", "CONTAINER_API_KEY", LONG_ENTRIES})


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """What all nodes of a run have in common.

    `seed_addr`, `seed_relay`: where the orchestrator is reached. `model`: what a node loads, as its PP_MODEL.
    `package`: what pip installs, pinned: `name==version` or the address of a wheel; `version` is what it must turn out
    to be. `ship`: what makes a machine fetch the caller's code in place of it, from `ship_environment`. `settings`:
    further variables of a node, such as its deadlines. `vast_url`: empty for the real service.
    """

    run_id: str
    num_stages: int
    seed_addr: str
    seed_relay: str
    join_token: str = field(repr=False)
    model: str
    context: int
    version: str
    package: str
    index_url: str = ""
    image: str = DEFAULT_IMAGE
    orphan_timeout_s: int = 600
    vast_url: str = ""
    ship: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def create_request(
    terms: NodeTerms, need: StageNeed, *, label: str, node_key: bytes, udp_port: bool = False
) -> CreateRequest:
    """The request for the machine of stage `need.stage`. A fresh label and a fresh key for every attempt.

    `udp_port`: with a public UDP port, for the node to be reached at.

    Raises UsageError for a package that is not pinned.
    """
    return CreateRequest(
        label=label,
        image=terms.image,
        disk_gb=need.disk_gb,
        script=start_script(),
        env=in_short_entries(stage_environment(terms, need.stage, node_key)) | (_UDP_PORT if udp_port else {}),
    )


def stage_environment(terms: NodeTerms, stage: int, node_key: bytes) -> dict[str, str]:
    """A node's whole environment. There is no PEER_DIRECT: relay and gossip find the peers."""
    if not 0 <= stage < terms.num_stages:
        raise ValueError(f"there is no stage {stage} in a chain of {terms.num_stages}")
    if not is_pinned(terms.package):
        raise UsageError(
            f"{terms.package!r} does not name one version",
            remedy="Give name==version, or the https address of a wheel.",
        )
    own = {
        "STAGE": str(stage),
        "NUM_STAGES": str(terms.num_stages),
        "SEED_ADDR": terms.seed_addr,
        "SEED_RELAY": terms.seed_relay,
        "PP_RUN_ID": terms.run_id,
        "PP_JOIN_TOKEN": terms.join_token,
        "PP_NODE_KEY": node_key.hex(),
        "PP_MODEL": terms.model,
        "PP_CONTEXT": str(terms.context),
        "PP_PACKAGE": terms.package,
        "PP_VERSION": terms.version,
        "PP_INDEX_URL": terms.index_url,
        "PP_ORPHAN_TIMEOUT": str(terms.orphan_timeout_s),
        "PP_VAST_URL": terms.vast_url,
        # An image that was not made for NVIDIA gets the compute libraries only when it asks.
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    foreign = sorted(set(terms.settings) & (_NEVER | set(own)))
    if foreign:
        raise ValueError(f"these are not for settings: {', '.join(foreign)}")
    return {name: value for name, value in (own | dict(terms.ship) | dict(terms.settings)).items() if value}


def in_short_entries(environment: Mapping[str, str]) -> dict[str, str]:
    """The same with long values in parts, which the start script joins again."""
    short: dict[str, str] = {}
    long: list[str] = []
    for name, value in environment.items():
        if len(name) + 1 + len(value) <= _ENTRY_CHARS:
            short[name] = value
            continue
        width = _ENTRY_CHARS - len(name) - 6
        parts = [value[at : at + width] for at in range(0, len(value), width)]
        short |= {f"{name}_{index}": part for index, part in enumerate(parts)}
        long.append(f"{name}:{len(parts)}")
    return short | ({LONG_ENTRIES: " ".join(long)} if long else {})


def is_address(package: str) -> bool:
    """Whether it is a wheel's address and not the name of a version."""
    return package.startswith(("https://", "http://"))


def is_pinned(package: str) -> bool:
    """Whether pip can only install one thing for it."""
    if is_address(package):
        return package.partition("#")[0].partition("?")[0].endswith(".whl")
    name, equals, version = package.partition("==")
    return bool(equals) and name.replace("-", "").replace("_", "").isalnum() and version.replace(".", "").isalnum()
