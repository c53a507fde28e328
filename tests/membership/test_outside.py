"""Members publish where others see them from outside."""

from __future__ import annotations

import asyncio

import pytest

from ppsmoke.membership.courier import Courier, Path
from ppsmoke.membership.outside import CHANNEL
from ppsmoke.transport import parse_ticket
from tests.membership.kit import SEED, Cluster, cluster
from tests.transport.kit import PATIENCE_S, eventually, id_of, run_clean

OUTSIDE = "203.0.113.9:4000"
LATER = "203.0.113.9:5000"


class Nat:
    """As if stage 0 sat behind one: its peers see it at `at`, whatever its sockets' addresses are."""

    def __init__(self) -> None:
        self.at = OUTSIDE
        self.really = Courier.path

    def path(self, courier: Courier) -> Path | None:
        seen = self.really(courier)
        return seen if seen is None or courier.peer != id_of("stage 0") else Path(False, self.at, seen.rtt_s)


@pytest.fixture
def nat(monkeypatch: pytest.MonkeyPatch) -> Nat:
    made = Nat()
    monkeypatch.setattr(Courier, "path", lambda courier: made.path(courier))
    return made


async def join_far(made: Cluster) -> None:
    for peer in (made.seed, *made.peers):
        peer.mesh.endpoint.loopback_only = False
    await asyncio.gather(*(member.join(PATIENCE_S) for member in made.members))


def addresses(made: Cluster, of: str) -> list[str]:
    """Of a member, as stage 1 knows it."""
    record = made.members[1].members().get(id_of(of))
    return [] if record is None else [str(a) for a in parse_ticket(record.ticket)[1].direct_addresses()]


def test_what_a_peer_sees_reaches_everybody_and_so_does_a_new_mapping(nat: Nat) -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_far(made)
            await eventually(lambda: OUTSIDE in addresses(made, "stage 0"))
            own = made.peers[0].mesh.endpoint.direct_addresses()
            assert set(own) == set(addresses(made, "stage 0"))
            assert len(own) > 1, "its own addresses stay"
            nat.at = LATER
            await eventually(lambda: LATER in addresses(made, "stage 0"))
            await eventually(lambda: OUTSIDE not in addresses(made, "stage 0"))
            assert OUTSIDE not in addresses(made, "orchestrator")

    run_clean(work())


def test_on_loopback_nobody_is_told_anything(nat: Nat) -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await asyncio.gather(*(member.join(PATIENCE_S) for member in made.members))
            await made.members[1].wait_alive(2, PATIENCE_S)
            await asyncio.sleep(0.2)
            said = [channel for peer in (made.seed, *made.peers) for _, channel, _ in peer.events.messages]
            assert said == []

    run_clean(work())


def test_what_is_no_address_is_not_published() -> None:
    async def work() -> None:
        async with cluster(2) as made:
            await join_far(made)
            before = made.peers[0].mesh.endpoint.ticket()
            for body in ({}, {"address": 7}, {"address": "x" * 65}, {"address": "nonsense"}, {"address": "0.0.0.0:1"}):
                await made.seed.mesh.send(made.peers[0].id, CHANNEL, body)
            await made.seed.mesh.send(made.peers[0].id, CHANNEL, {"address": OUTSIDE})
            await eventually(lambda: OUTSIDE in addresses(made, "stage 0"))
            assert set(made.peers[0].mesh.endpoint.direct_addresses()) == {
                *(str(a) for a in parse_ticket(before)[1].direct_addresses()),
                OUTSIDE,
            }
            assert made.members[1].members()[SEED].state == "alive"

    run_clean(work())
