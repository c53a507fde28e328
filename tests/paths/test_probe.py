"""Ways are measured over the very connection of the edges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ppsmoke.edges import EdgeAcceptor
from ppsmoke.errors import DeadlineExceeded, PeerLost
from ppsmoke.paths import probe
from ppsmoke.paths.probe import MAX_PROBE_BYTES, measure
from tests.transport.kit import PATIENCE_S, Peer, peer, run_clean


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Peer, Peer]]:
    """b answers what edges' streams and probes ask."""
    async with peer("a") as a, peer("b") as b:
        EdgeAcceptor(b.mesh)
        a.knows(b)
        yield a, b


@pytest.mark.parametrize("size", [0, 1, 65536, 300_000])
def test_a_way_has_a_path_a_round_trip_and_a_throughput(size: int) -> None:
    async def work() -> None:
        async with pair() as (a, b):
            way = await measure(a.mesh, b.id, size, PATIENCE_S)
            assert (way.path, way.probe_bytes) == ("direct", size)
            assert 0 < way.round_trip_s < PATIENCE_S
            assert (way.bytes_per_s is None) == (size == 0)
            assert a.mesh.linked() == {b.id}
            await a.mesh.send(b.id, "control", {"after": "it"})  # on the same link, which is as good as before
            await b.events.until(lambda: bool(b.events.messages))
            assert len(b.events.up) == 1

    run_clean(work())


def test_a_way_on_loopback_is_none_over_a_relay_also_where_no_path_is_in_use_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        async with pair() as (a, b):
            monkeypatch.setattr(probe, "path_of", lambda connection: None)
            assert (await measure(a.mesh, b.id, 0, PATIENCE_S)).path == "direct"

    run_clean(work())


def test_many_are_measured_at_one_time_and_both_ways() -> None:
    async def work() -> None:
        async with pair() as (a, b):
            EdgeAcceptor(a.mesh)
            ways = [measure(a.mesh, b.id, 100_000, PATIENCE_S), measure(b.mesh, a.id, 100_000, PATIENCE_S)] * 1
            assert all(way.bytes_per_s for way in await asyncio.gather(*ways))

    run_clean(work())


def test_a_peer_that_does_not_answer_is_given_up_and_named() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            silent = []
            b.mesh.on_stream = lambda _, stream: silent.append(stream)
            with pytest.raises(PeerLost, match=r"b did not answer a probe within 0\.3 s"):
                await measure(a.mesh, b.id, 10, 0.3)

    run_clean(work())


def test_a_peer_that_is_not_there_is_named_with_the_time() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            with pytest.raises(DeadlineExceeded, match=r"no link to b within 0\.3 s"):
                await measure(a.mesh, b.id, 10, 0.3)

    run_clean(work())


@pytest.mark.parametrize(
    "record",
    [
        b'{"probe":"bulk","bytes":0}',
        b'{"probe":"bulk","bytes":%d}' % (MAX_PROBE_BYTES + 1),
        b'{"probe":',
        b'{"probe":"x"}',
    ],
)
def test_nonsense_is_not_answered_and_the_link_lives_on(record: bytes) -> None:
    async def work() -> None:
        async with pair() as (a, b):
            stream = await a.mesh.open_stream(b.id, max_frame=4096)
            await stream.write_frame(record)
            with pytest.raises(PeerLost):
                assert await asyncio.wait_for(stream.read_frame(), PATIENCE_S) is not None
            await stream.abort()
            assert (await measure(a.mesh, b.id, 10, PATIENCE_S)).path == "direct"

    run_clean(work())
