"""All interleavings of two nodes that dial each other at once, played by hand."""

from __future__ import annotations

import itertools
import random

from ppsmoke.transport.hello import MOMENTARY, Refused
from ppsmoke.transport.rendezvous import PeerStamp, Verdict, judge_incoming

LOW, HIGH = "1" * 64, "9" * 64


def test_no_link_and_no_dial_is_welcomed() -> None:
    for own, peer in ((LOW, HIGH), (HIGH, LOW)):
        verdict = judge_incoming(own_id=own, peer_id=peer, hello=PeerStamp("x", 1), link=None, own_hello_sent=False)
        assert verdict is Verdict.WELCOME


def test_the_lower_id_s_dial_wins() -> None:
    at_low = judge_incoming(own_id=LOW, peer_id=HIGH, hello=PeerStamp("x", 1), link=None, own_hello_sent=True)
    at_high = judge_incoming(own_id=HIGH, peer_id=LOW, hello=PeerStamp("x", 1), link=None, own_hello_sent=True)
    assert isinstance(at_low, Refused)
    assert at_low.code in MOMENTARY
    assert at_high is Verdict.WELCOME


def test_a_peer_that_has_no_link_any_more_replaces_ours_and_a_leftover_does_not() -> None:
    link = PeerStamp("life", 5)
    for hello, wanted in (
        (PeerStamp("life", 6), Verdict.REPLACE),
        (PeerStamp("another life", 1), Verdict.REPLACE),
    ):
        assert judge_incoming(own_id=LOW, peer_id=HIGH, hello=hello, link=link, own_hello_sent=False) is wanted
    stale = judge_incoming(own_id=LOW, peer_id=HIGH, hello=PeerStamp("life", 4), link=link, own_hello_sent=False)
    assert isinstance(stale, Refused)
    assert stale.code in MOMENTARY


class Node:
    """A mesh reduced to what the rules see. A connection is the pair (dialler, serial)."""

    def __init__(self, own: str, peer: str) -> None:
        self.own, self.peer = own, peer
        self.stamp = 0
        self.hello_sent = False
        self.link: tuple[str, int] | None = None
        self.link_stamp: PeerStamp | None = None
        self.links_made = 0

    def next_stamp(self) -> PeerStamp:
        self.stamp += 1
        return PeerStamp(self.own, self.stamp)

    def adopt(self, connection: tuple[str, int], stamp: PeerStamp) -> None:
        self.link, self.link_stamp = connection, stamp
        self.links_made += 1
        self.hello_sent = False


def play(rng: random.Random) -> tuple[Node, Node]:
    """Both dial once; messages of one connection stay in order, connections overtake each other at random."""
    low, high = Node(LOW, HIGH), Node(HIGH, LOW)
    nodes = {LOW: low, HIGH: high}
    to_start = [low, high]
    queues: dict[tuple[tuple[str, int], str], list[tuple[str, object]]] = {}
    for serial in itertools.count():
        ready = [key for key, queue in queues.items() if queue]
        choices: list[object] = [*to_start, *ready]
        if not choices:
            return low, high
        choice = rng.choice(choices)
        if isinstance(choice, Node):
            to_start.remove(choice)
            if choice.link is None:
                choice.hello_sent = True
                queues[((choice.own, serial), choice.peer)] = [("hello", choice.next_stamp())]
            continue
        connection, receiver_id = choice  # type: ignore[misc]
        receiver = nodes[receiver_id]
        kind, value = queues[choice].pop(0)  # type: ignore[index]
        back = queues.setdefault((connection, receiver.peer), [])
        if kind == "hello":
            verdict = judge_incoming(
                own_id=receiver.own,
                peer_id=receiver.peer,
                hello=value,  # type: ignore[arg-type]
                link=receiver.link_stamp,
                own_hello_sent=receiver.hello_sent,
            )
            if isinstance(verdict, Refused):
                back.append(("refused", verdict))
            else:
                receiver.adopt(connection, value)  # type: ignore[arg-type]
                back.append(("welcome", receiver.next_stamp()))
        elif receiver.hello_sent or receiver.link is None:
            receiver.hello_sent = False
            if kind == "welcome":
                receiver.adopt(connection, value)  # type: ignore[arg-type]
    raise AssertionError


def test_every_interleaving_of_two_dials_makes_exactly_one_link() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        low, high = play(rng)
        assert low.link == high.link is not None
        assert (low.links_made, high.links_made) == (1, 1)
