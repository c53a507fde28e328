"""The beginning of a stage's node, as its settings have it: its endpoint, the mesh and the membership on it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ppsmoke import __version__
from ppsmoke.membership import Member, SwimMembership, local_config, wan_config
from ppsmoke.membership.api import OnPath
from ppsmoke.stage.settings import NodeSettings
from ppsmoke.transport import Endpoint, Mesh, MeshEvents, Refused

log = logging.getLogger(__name__)


async def bind_endpoint(settings: NodeSettings, secret_key: bytes) -> Endpoint:
    """Raises as Endpoint.bind does."""
    endpoint = await Endpoint.bind(
        secret_key,
        loopback_only=not settings.far,
        relay_urls=settings.seed_relay,
        relay_token=settings.relay_token,
        udp_port=settings.udp_port,
    )
    if settings.mapped_address is not None:
        log.info("reached from outside at %s", settings.mapped_address)
        await endpoint.add_external(settings.mapped_address)
    return endpoint


def make_mesh(endpoint: Endpoint, settings: NodeSettings, name_of: Callable[[str], str], events: MeshEvents) -> Mesh:
    """Not started yet."""
    return Mesh(
        endpoint,
        run_id=settings.run_id,
        join_token=bytes.fromhex(settings.join_token),
        tool_version=__version__,
        name_of=name_of,
        admit=_admit,
        events=events,
    )


def make_membership(
    mesh: Mesh,
    settings: NodeSettings,
    orchestrator: str,
    on_change: Callable[[Member | None, Member], None],
    on_path: OnPath,
) -> SwimMembership:
    """Not started yet. `orchestrator` is its node id."""
    return SwimMembership(
        mesh,
        orchestrator_id=orchestrator,
        stage_index=settings.stage,
        stage_count=settings.num_stages,
        config=(wan_config if settings.far else local_config)(settings.silence_limit),
        on_change=on_change,
        on_path=on_path,
    )


def _admit(node_id: str) -> Refused | None:
    return None  # the join token was proven; what a peer may do depends on the plan
