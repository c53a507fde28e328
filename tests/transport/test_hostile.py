"""Peers that misbehave: each is cut off, and the mesh goes on serving the others."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from ppsmoke.edges import EdgeAcceptor, InboundEdge, OutboundEdge
from ppsmoke.edges import records as edge_records
from ppsmoke.errors import JoinRefused
from ppsmoke.iroh_fix import iroh
from ppsmoke.transport import endpoint as endpoint_module
from ppsmoke.transport import hello
from tests.edges.kit import activation, inbound, outbound
from tests.transport.kit import PATIENCE_S, RUN_ID, Peer, eventually, peer, run_clean
from tests.transport.raw import frame, raw_peer


async def still_serves(target: Peer) -> None:
    async with peer("b") as b:
        b.knows(target)
        await b.mesh.send(target.id, "control", {"are": "you there"})
        await target.events.until(lambda: ("b", "control", {"are": "you there"}) in target.events.messages)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes was announced where at most 8192"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes was announced where at most 8192"),
        (frame(b"\x00\x01\x02"), "not a handshake record"),
        (frame(b'{"is":"Welcome","ticket":"","life":"","stamp":1}'), "a hello was expected, not a welcome"),
        (frame(b""), "not a handshake record"),
    ],
)
def test_garbage_instead_of_a_hello(data: bytes, complaint: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        async with peer("a") as a:
            async with raw_peer(a) as stranger:
                await stranger.say(data)
                closed = await asyncio.wait_for(stranger.connection.closed(), PATIENCE_S)
                assert "no proper hello" in closed
            await still_serves(a)
            assert a.events.up == ["b"]

    run_clean(work())
    assert complaint in caplog.text
    assert "stranger connected and sent no hello" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("proof", "\ud800"),
        ("tool_version", "\ud800"),
        ("protocol", 10**4000),
        ("run_id", "\ud800"),
        ("ticket", "\ud800"),
    ],
)
def test_a_hello_with_what_no_program_says(field: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    """Refused in order: no unexpected error, and so no traceback in anybody's log."""

    async def work() -> None:
        async with peer("a") as a:
            async with raw_peer(a) as stranger:
                said = {**json.loads(hello.encode(stranger.hello(a))), field: value}
                await stranger.say(frame(json.dumps(said).encode()))
                closed = await asyncio.wait_for(stranger.connection.closed(), PATIENCE_S)
                assert "closed by peer" in closed
            await still_serves(a)

    run_clean(work())
    assert "refused a link from stranger" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("data", [None, b"", b"\x00\x00", b"\x00\x00\x01\x00{"])
def test_one_that_never_finishes_its_hello(data: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with peer("a", hello_deadline_s=0.5) as a:
            async with raw_peer(a) as stranger:
                if data is not None:
                    bi = await stranger.say(data)
                closed = await asyncio.wait_for(stranger.connection.closed(), PATIENCE_S)
                assert "no proper hello" in closed
                bi = None  # noqa: F841
            await still_serves(a)

    run_clean(work())
    assert "stranger connected and said nothing proper within 0.5 s" in caplog.text


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (frame(b"\x80garbage"), "a control frame is not JSON"),
        (frame(b'{"channel":"control","body":[]}'), "a control frame of an unknown kind"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes was announced where at most 1048576 are allowed"),
    ],
)
def test_garbage_after_a_proper_hello_ends_the_link_with_the_reason(data: bytes, complaint: str) -> None:
    async def work() -> None:
        async with peer("a") as a:
            async with raw_peer(a) as stranger:
                bi = await stranger.greet(a)
                await bi.send().write_all(data)
                await a.events.until(lambda: bool(a.events.down))
                ((name, reason),) = a.events.down
                assert name == "stranger"
                assert reason.what == f"stranger sent what this version does not understand: {complaint}"
            await still_serves(a)

    run_clean(work())


def test_a_control_stream_that_ends_or_breaks_is_a_lost_link() -> None:
    async def work() -> None:
        async with peer("a") as a:
            for ending, what in (
                ("finish", "it ended its control stream"),
                ("half", "the stream ended in the middle of a frame"),
                ("reset", "broke off a stream"),
            ):
                a.events.down.clear()
                async with raw_peer(a) as stranger:
                    bi = await stranger.greet(a)
                    if ending == "half":
                        await bi.send().write_all(b"\x00\x00\x00\x05abc")
                    await (bi.send().reset(9) if ending == "reset" else bi.send().finish())
                    await a.events.until(lambda: bool(a.events.down))
                    assert what in a.events.down[0][1].what
            await still_serves(a)

    run_clean(work())


@pytest.mark.parametrize(
    "data",
    [
        frame(b"\x00garbage"),
        frame(edge_records.encode(edge_records.Finish())),
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00",
    ],
)
def test_a_stream_that_is_no_edge_is_cut_off(data: bytes) -> None:
    async def work() -> None:
        async with peer("stage 1") as a, peer("stage 0") as good:
            into = InboundEdge(RUN_ID, inbound("stage 0"))
            EdgeAcceptor(a.mesh, open_deadline_s=0.5).expect(into)
            async with raw_peer(a) as stranger:
                control = await stranger.greet(a)
                bi = await stranger.say(data)
                with pytest.raises(iroh.IrohError) as caught:
                    await asyncio.wait_for(bi.recv().read(100), PATIENCE_S)
                assert "Reset" in caught.value.message()
                good.knows(a)
                out = OutboundEdge(good.mesh, RUN_ID, outbound("stage 1"))
                await out.open(PATIENCE_S)
                await out.write(activation(0))
                assert await asyncio.wait_for(into.next(), PATIENCE_S) == activation(0)
                await out.close("test over")
                await into.close("test over")
                del control

    run_clean(work())


def test_an_edge_opened_by_another_than_its_producer_is_refused() -> None:
    async def work() -> None:
        async with peer("stage 1") as a:
            into = InboundEdge(RUN_ID, inbound("stage 0"))
            EdgeAcceptor(a.mesh).expect(into)
            async with raw_peer(a) as stranger:
                control = await stranger.greet(a)
                opening = edge_records.encode(edge_records.Open(RUN_ID, 1, "Activation"))
                bi = await stranger.say(frame(opening))
                size = int.from_bytes(await bi.recv().read_exact(4), "big")
                answer = edge_records.decode(await bi.recv().read_exact(size))
                assert answer == edge_records.Refuse("the planned producer of edge 1 is stage 0")
                del control
            await into.close("test over")

    run_clean(work())


def test_more_silent_connections_than_we_greet_do_not_lock_others_out() -> None:
    async def work() -> None:
        async with peer("a", hello_deadline_s=1.0) as a:
            async with raw_peer(a) as stranger:
                _, address = endpoint_module.parse_ticket(a.mesh.endpoint.ticket())
                results = await asyncio.gather(
                    *(stranger.endpoint.connect(address) for _ in range(80)), return_exceptions=True
                )
                assert any(isinstance(result, iroh.IrohError) for result in results), "none was refused"
                assert a.mesh._handshakes <= 64
                await eventually(lambda: a.mesh._handshakes == 0)
            await still_serves(a)

    run_clean(work())


def test_a_peer_of_another_protocol_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            monkeypatch.setattr(endpoint_module, "ALPN", b"pp-smoke-run/99")
            with pytest.raises(JoinRefused, match="b refused the link: it speaks another protocol"):
                await a.mesh.link(b.id)

    run_clean(work())
