from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
import time
from pathlib import Path

import pytest

from ppsmoke.transport import Endpoint, TicketInvalid, node_id_of, parse_ticket
from ppsmoke.transport import endpoint as module
from tests.transport.kit import key_of, run_clean


def hosts(endpoint: Endpoint) -> set[str]:
    return {address.rpartition(":")[0].strip("[]") for address in endpoint.direct_addresses()}


def test_a_key_has_32_bytes_and_always_gives_the_same_id() -> None:
    assert node_id_of(key_of("a")) == node_id_of(key_of("a")) != node_id_of(key_of("b"))
    assert len(bytes.fromhex(node_id_of(key_of("a")))) == 32
    for length in (0, 31, 33):
        with pytest.raises(ValueError, match=f"a node key has 32 bytes, not {length}"):
            node_id_of(bytes(length))


def test_loopback_only_means_loopback_in_both_families() -> None:
    async def work() -> None:
        endpoint = await Endpoint.bind(key_of("a"), loopback_only=True)
        found = [str(address) for address in endpoint._endpoint.bound_sockets()]
        assert found
        assert all(ipaddress.ip_address(host).is_loopback for host in hosts(endpoint))
        assert all(ipaddress.ip_address(a.rpartition(":")[0].strip("[]")).is_loopback for a in found), found
        await endpoint.close()

    run_clean(work())


def test_an_address_survives_its_ticket() -> None:
    async def work() -> None:
        endpoint = await Endpoint.bind(key_of("a"), loopback_only=True)
        node_id, address = parse_ticket(endpoint.ticket())
        assert node_id == endpoint.node_id == node_id_of(key_of("a"))
        assert sorted(address.direct_addresses()) == sorted(endpoint.direct_addresses())
        await endpoint.close()
        await endpoint.close()

    run_clean(work())


@pytest.mark.parametrize("junk", ["", "endpoint", "endpointaa", "127.0.0.1:80", "é", "x" * 100_000])
def test_junk_is_no_ticket(junk: str) -> None:
    with pytest.raises(TicketInvalid):
        parse_ticket(junk)


def test_a_machine_without_ipv6_loopback_binds_ipv4_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []

    class Builder:
        def __init__(self) -> None:
            self.real = module_builder()

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

        def bind_addr(self, address: str) -> None:
            bound.append(address)
            self.real.bind_addr(address)

    module_builder = module.iroh.EndpointBuilder
    monkeypatch.setattr(module.iroh, "EndpointBuilder", Builder)

    async def work() -> None:
        for has_ipv6 in (True, False):
            monkeypatch.setattr(module, "_has_ipv6_loopback", lambda answer=has_ipv6: answer)
            endpoint = await Endpoint.bind(key_of("a"), loopback_only=True)
            await endpoint.close()

    run_clean(work())
    assert bound == ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"]


def test_a_port_that_a_router_leads_to_is_bound_and_another_one_where_it_is_taken() -> None:
    def ports(endpoint: Endpoint) -> set[int]:
        return {int(str(address).rpartition(":")[2]) for address in endpoint._endpoint.bound_sockets()}

    async def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("0.0.0.0", 0))
            port = probe.getsockname()[1]
        first = await Endpoint.bind(key_of("a"), loopback_only=False, udp_port=port)
        assert port in ports(first)
        second = await Endpoint.bind(key_of("b"), loopback_only=False, udp_port=port)
        assert ports(second)
        assert port not in ports(second)
        await first.close()
        await second.close()

    run_clean(work())


def test_a_bind_that_is_cancelled_at_any_moment_leaves_no_socket() -> None:
    async def bind(cancelled_after_s: float | None) -> None:
        binding = asyncio.ensure_future(Endpoint.bind(key_of("a"), loopback_only=True))
        await asyncio.wait((binding,), timeout=cancelled_after_s)
        if binding.cancel():
            with pytest.raises(asyncio.CancelledError):
                await binding
        else:
            await (await binding).close()

    asyncio.run(bind(None))  # what a process opens once
    before = open_files()
    for tenths_of_ms in range(0, 50, 5):
        asyncio.run(bind(tenths_of_ms / 10_000))  # each in a loop that ends at once: nothing can be mended later
    ends = time.monotonic() + 20
    while open_files() > before:
        assert time.monotonic() < ends, f"{open_files() - before} more files are open than before"
        gc.collect()
        time.sleep(0.01)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
