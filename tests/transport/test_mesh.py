from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ppsmoke.errors import DeadlineExceeded, JoinRefused, MalformedRequest, PeerLeft, PeerLost
from ppsmoke.transport.hello import Refused
from tests.transport.kit import Peer, id_of, peer, run_clean


def test_a_link_carries_messages_both_ways_in_order() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await a.mesh.link(b.id)
            await b.events.until(lambda: b.events.up == ["a"])
            for number in range(50):
                await a.mesh.send(b.id, "control", {"number": number})
                await b.mesh.send(a.id, "membership", {"number": number})
            await b.events.until(lambda: len(b.events.messages) == 50)
            await a.events.until(lambda: len(a.events.messages) == 50)
            assert b.events.messages == [("a", "control", {"number": n}) for n in range(50)]
            assert a.events.messages == [("b", "membership", {"number": n}) for n in range(50)]

    run_clean(work())


def test_send_dials_by_itself_and_the_acceptor_can_answer_without_an_address() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await a.mesh.send(b.id, "control", {"hello": "b"})
            await b.events.until(lambda: bool(b.events.messages))
            await b.mesh.send(a.id, "control", {"hello": "a"})
            await a.events.until(lambda: bool(a.events.messages))
            assert a.mesh.linked() == {b.id}

    run_clean(work())


def test_many_callers_share_one_dial() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await asyncio.gather(*(a.mesh.link(b.id) for _ in range(20)))
            await b.events.until(lambda: bool(b.events.up))
            assert b.events.up == ["a"]
            assert a.events.up == ["b"]

    run_clean(work())


def test_both_sides_dial_at_once_and_one_link_stays() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            b.knows(a)
            for round_number in range(8):
                await asyncio.gather(
                    a.mesh.send(b.id, "control", {"round": round_number}),
                    b.mesh.send(a.id, "control", {"round": round_number}),
                )
                await a.events.until(lambda n=round_number: len(a.events.messages) == n + 1)
                await b.events.until(lambda n=round_number: len(b.events.messages) == n + 1)
                assert len(a.events.up) == len(b.events.up) == round_number + 1, "a link was made twice"
                assert len(a.events.down) == len(b.events.down) == round_number
                await a.mesh.drop(b.id, "next round")
                await a.events.until(lambda n=round_number: len(a.events.down) == n + 1)
                await b.events.until(lambda n=round_number: len(b.events.down) == n + 1)

    run_clean(work())


@pytest.mark.parametrize(
    ("dialler", "code"),
    [
        ({"join_token": b"another"}, "the join token is wrong"),
        ({"tool_version": "9.9.9"}, "it runs version 0.1.0, not 9.9.9"),
        ({"run_id": "cd" * 16}, "it belongs to another run"),
    ],
)
def test_a_refused_dialler_learns_the_reason(dialler: dict[str, object], code: str) -> None:
    async def work() -> None:
        async with peer("a", **dialler) as a, peer("b") as b:
            a.knows(b)
            with pytest.raises(JoinRefused) as caught:
                await a.mesh.link(b.id)
            assert caught.value.what == f"b refused the link: {code}"
            assert (caught.value.peer, caught.value.phase) == ("b", "dial")
            assert caught.value.remedy
            assert not a.events.up
            assert not b.events.up

    run_clean(work())


def test_an_id_that_is_not_admitted_is_refused_with_the_reason() -> None:
    async def work() -> None:
        def admit(node_id: str) -> Refused | None:
            return None if node_id == id_of("b") else Refused("not_planned", "it is not in the plan of this run")

        async with peer("orchestrator", admit=admit) as seed, peer("stranger") as stranger, peer("b") as b:
            stranger.knows(seed)
            b.knows(seed)
            with pytest.raises(JoinRefused, match="orchestrator refused the link: it is not in the plan"):
                await stranger.mesh.link(seed.id)
            await b.mesh.link(seed.id)
            await seed.events.until(lambda: bool(seed.events.up))
            assert seed.events.up == ["b"]

    run_clean(work())


def test_an_orderly_leave_is_known_at_once_with_its_reason_and_after_the_last_message() -> None:
    async def work() -> None:
        async with peer("stage 0") as a, peer("stage 1") as b:
            a.knows(b)
            await a.mesh.link(b.id)
            for number in range(20):
                await b.events.until(lambda: bool(b.events.up))
                await b.mesh.send(a.id, "control", {"number": number})
            await b.mesh.close("stopped")
            await a.events.until(lambda: bool(a.events.down))
            assert len(a.events.messages) == 20
            ((name, reason),) = a.events.down
            assert name == "stage 1"
            assert isinstance(reason, PeerLeft)
            assert reason.what == "stage 1 left: stopped"
            assert not b.events.down, "closing oneself is no news"

    run_clean(work())


def test_a_dead_address_ends_at_the_deadline_and_names_peer_and_phase() -> None:
    async def work() -> None:
        async with peer("a") as a:
            async with peer("b") as b:
                a.knows(b)
                b_id = b.id
            with pytest.raises(DeadlineExceeded, match="no link to b within 1 s") as caught:
                await a.mesh.link(b_id, deadline_s=1.0)
            assert (caught.value.peer, caught.value.phase) == ("b", "dial")
            with pytest.raises(DeadlineExceeded, match="its address is not known"):
                await a.mesh.send(id_of("c"), "control", {}, deadline_s=0.3)

    run_clean(work())


def test_an_address_learned_while_dialling_is_used() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            dialling = asyncio.create_task(a.mesh.link(b.id))
            await asyncio.sleep(0)
            a.knows(b)
            await dialling
            assert a.mesh.linked() == {b.id}

    run_clean(work())


def test_a_peer_that_cannot_be_dialled_serves_by_dialling_us() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            waiting = asyncio.create_task(a.mesh.link(b.id))
            b.knows(a)
            await b.mesh.link(a.id)
            await waiting

    run_clean(work())


def test_an_address_that_belongs_to_another_node_is_refused() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            with pytest.raises(PeerLost, match="the address given for c belongs to another node"):
                a.mesh.learn_address(id_of("c"), b.mesh.endpoint.ticket())
            for hostile in ("", "endpointzz", "x" * 5000):
                with pytest.raises(PeerLost, match="the address given for c is unusable"):
                    a.mesh.learn_address(id_of("c"), hostile)

    run_clean(work())


def test_a_peer_that_lost_its_link_and_dials_again_gets_a_new_one() -> None:
    async def work() -> None:
        async with peer("b") as b, peer("a") as a:
            a.knows(b)
            await a.mesh.link(b.id)
            await b.events.until(lambda: len(b.events.up) == 1)
            a.mesh._links[b.id]._connection = _Deaf(a.mesh._links[b.id]._connection)
            old = a.mesh._links.pop(b.id)  # a forgets its link without b noticing
            await a.mesh.link(b.id)
            await b.events.until(lambda: len(b.events.up) == 2)
            ((_, reason),) = b.events.down
            assert "linked anew" in reason.what
            await b.mesh.send(a.id, "control", {"still": "there"})
            await a.events.until(lambda: bool(a.events.messages))
            del old

    run_clean(work())


class _Deaf:
    """A connection whose close does nothing."""

    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def close(self, code: int, reason: bytes) -> None:
        pass


def test_a_message_over_the_limit_is_refused_before_it_is_sent() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            await a.mesh.send(b.id, "control", {"big": "x" * 900_000})
            await b.events.until(lambda: len(b.events.messages) == 1)
            with pytest.raises(MalformedRequest, match="is over"):
                await a.mesh.send(b.id, "control", {"big": "x" * (1 << 20)})

    run_clean(work())


def test_a_listener_that_fails_does_not_stop_the_mesh(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:

            def explode(*_: object) -> None:
                raise RuntimeError("listener bug")

            b.events.link_up = explode  # type: ignore[method-assign]
            a.knows(b)
            await a.mesh.send(b.id, "control", {"after": "the bug"})
            await b.events.until(lambda: len(b.events.messages) == 1)

    run_clean(work())
    assert "listener bug" in caplog.text


def test_closing_ends_waiting_calls_and_later_ones() -> None:
    async def work() -> None:
        async with peer("a") as a:
            waiting = asyncio.create_task(a.mesh.link(id_of("b"), deadline_s=60))
            await asyncio.sleep(0)
            await a.mesh.close("stopped")
            with pytest.raises(PeerLost, match="this process is leaving"):
                await waiting
            with pytest.raises(PeerLost, match="this process is leaving"):
                await a.mesh.send(id_of("b"), "control", {})
            await a.mesh.close("again")

    run_clean(work())


def test_closing_while_a_dead_address_is_dialled_does_not_hang() -> None:
    async def work() -> None:
        async with peer("a") as a:
            async with peer("b") as b:
                a.knows(b)
                b_id = b.id
            dialling = asyncio.create_task(a.mesh.link(b_id, deadline_s=60))
            await asyncio.sleep(0.2)
            async with asyncio.timeout(10):
                await a.mesh.close("stopped", deadline_s=1.0)
            with pytest.raises(PeerLost, match="no link to b: this process is leaving"):
                await dialling

    run_clean(work())


def test_a_close_tells_all_peers_at_once_and_delivers_what_was_sent_before() -> None:
    async def work() -> None:
        async with peer("orchestrator") as own, peer("stage 0") as a, peer("stage 1") as b, peer("stage 2") as c:
            for other in (a, b, c):
                other.knows(own)
                await other.mesh.link(own.id)
            await own.events.until(lambda: len(own.events.up) == 3)
            for other in (a, b, c):
                await own.mesh.send(other.id, "control", {"big": "x" * 500_000})
            await own.mesh.close("the run is over")
            for other in (a, b, c):
                await other.events.until(lambda o=other: bool(o.events.down))
                assert other.events.down[0][1].what == "orchestrator left: the run is over"
                assert len(other.events.messages) == 1

    run_clean(work())


def test_closing_does_not_wait_for_peers_that_know_or_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            given = {}
            for one in (a, b):
                close = one.mesh.endpoint.close

                async def noted(deadline_s: float = 5.0, one: Peer = one, close: Any = close) -> None:
                    given[one.id] = deadline_s
                    await close(deadline_s)

                monkeypatch.setattr(one.mesh.endpoint, "close", noted)
            a.knows(b)
            await a.mesh.link(b.id)
            await b.events.until(lambda: b.events.up == ["a"])
            await a.mesh.close("over", 9.0)
            await b.events.until(lambda: bool(b.events.down))
            await b.mesh.close("over", 9.0)
            assert given[a.id] < 1.0
            assert given[b.id] < 1.0

    run_clean(work())
