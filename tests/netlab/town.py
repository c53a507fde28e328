"""The hosts of a chain in a lab: the caller, the machines of its stages, a relay, and whoever else is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ppsmoke.stage.settings import MAPPED_UDP_PORT
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

    def map_port(self, stage: int, public_port: int = 40213) -> dict[str, str]:
        """Lead a public UDP port to the machine of a stage, which has a router; what the machine is told of that."""
        host = self.stages[stage]
        assert host.router is not None, f"{host.name} has its own public address"
        host.router.map_port(public_port, host.address, MAPPED_UDP_PORT)
        return {"PUBLIC_IPADDR": host.public_address, f"VAST_UDP_PORT_{MAPPED_UDP_PORT}": str(public_port)}


@contextmanager
def town(
    stages: int,
    *,
    relay: str,
    nat: Nat | None = Nat.PORT_PRESERVING,
    nats: Mapping[int | None, Nat | None] | None = None,
    link: LinkSettings | None = None,
    links: Mapping[int, LinkSettings] | None = None,
    seed: int = 0,
) -> Iterator[Town]:
    """Caller and stages, each behind a router of its own, and a relay that answers.

    `nats`: routers of some stages, or of the caller (None), that differ from `nat`. `link`: of the caller and of every
    stage, but for those that `links` has. Raises NoLab, NotBuilt.
    """
    with Lab(seed=seed) as lab, relay_on(relay_host := lab.host("relay"), relay) as server:
        service = lab.host("service")
        own, far = nats or {}, links or {}
        caller = lab.host("caller", nat=own.get(None, nat), link=link)
        hosts = [lab.host(f"stage-{i}", nat=own.get(i, nat), link=far.get(i, link)) for i in range(stages)]
        yield Town(lab, caller, hosts, service, relay_host, server)
        assert not (left := lab.processes()) or left == _of(server), f"processes left in the lab: {left}"


def _of(server: RelayServer) -> list[int]:
    return [] if server.pid is None else [server.pid]
