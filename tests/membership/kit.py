"""Members over real iroh, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ppsmoke.membership import ORCHESTRATOR_NAME, Member, SwimMembership, local_config
from tests.transport.kit import PATIENCE_S, Peer, id_of, peer

SEED = id_of("orchestrator")
Change = tuple[Member | None, Member]


@asynccontextmanager
async def member(own: Peer, stage_index: int | None, stage_count: int, **options: Any) -> AsyncIterator[SwimMembership]:
    """A started membership on a peer's mesh; it has not joined."""
    membership = SwimMembership(
        own.mesh,
        orchestrator_id=SEED,
        stage_index=stage_index,
        stage_count=stage_count,
        **{"config": local_config(), **options},
    )
    membership.start()
    try:
        yield membership
    finally:
        await membership.close()


@asynccontextmanager
async def seed_member(
    own: Peer, stage_count: int, planned: Mapping[str, int] | None = None, **options: Any
) -> AsyncIterator[SwimMembership]:
    """The orchestrator's, joined and named."""
    async with member(own, None, stage_count, planned=planned, **options) as membership:
        await membership.join(PATIENCE_S)
        await membership.register(ORCHESTRATOR_NAME, PATIENCE_S)
        yield membership


class Cluster:
    """`seed` and `stages` with their memberships; `changes`: what the seed's listener was told."""

    def __init__(self, seed: Peer, membership: SwimMembership, changes: list[Change]) -> None:
        self.seed = seed
        self.seed_membership = membership
        self.changes = changes
        self.peers: list[Peer] = []
        self.members: list[SwimMembership] = []


@asynccontextmanager
async def cluster(count: int, **options: Any) -> AsyncIterator[Cluster]:
    """An orchestrator that knows the plan, and `count` stages that know nothing but its address and have not joined."""
    changes: list[Change] = []
    async with AsyncExitStack() as stack:
        seed = await stack.enter_async_context(peer("orchestrator"))
        membership = await stack.enter_async_context(
            seed_member(
                seed,
                count,
                planned={id_of(f"stage {index}"): index for index in range(count)},
                on_change=lambda old, new: changes.append((old, new)),
                **options,
            )
        )
        made = Cluster(seed, membership, changes)
        for index in range(count):
            node = await stack.enter_async_context(peer(f"stage {index}"))
            node.knows(seed)
            made.peers.append(node)
            made.members.append(await stack.enter_async_context(member(node, index, count, **options)))
        yield made
