"""The hosts of a chain in a lab: the caller, the machines of its stages, a relay, and whoever else is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings
from tests.netlab.nat import Nat
from tests.netlab.relays import RelayServer, relay_on


@dataclass
class Town:
    """The hosts of a chain. `stages`: where the machine of each stage is; `nat` None: they are on the open internet."""

    lab: Lab
    caller: Host
    stages: list[Host]
    service: Host
    relay_host: Host
    relay: RelayServer

    def host_of(self, stage: int) -> Host:
        return self.stages[stage]


@contextmanager
def town(
    stages: int,
    *,
    relay: str,
    nat: Nat | None = Nat.PORT_PRESERVING,
    nats: Mapping[int, Nat | None] | None = None,
    link: LinkSettings | None = None,
    seed: int = 0,
) -> Iterator[Town]:
    """Caller and stages, each behind a router of its own, and a relay that answers.

    `nats`: routers of some stages that differ from `nat`. `link`: of the caller and of every stage. Raises NoLab,
    NotBuilt.
    """
    with Lab(seed=seed) as lab, relay_on(relay_host := lab.host("relay"), relay) as server:
        service = lab.host("service")
        caller = lab.host("caller", nat=nat, link=link)
        hosts = [lab.host(f"stage-{i}", nat=(nats or {}).get(i, nat), link=link) for i in range(stages)]
        yield Town(lab, caller, hosts, service, relay_host, server)
        assert not (left := lab.processes()) or left == _of(server), f"processes left in the lab: {left}"


def _of(server: RelayServer) -> list[int]:
    return [] if server.pid is None else [server.pid]
