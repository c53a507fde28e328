from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from ppsmoke.membership.swim.api import MemberState
from ppsmoke.membership.swim.rtt import RoundTrip
from ppsmoke.membership.swim.table import Record, Table, beats
from ppsmoke.membership.swim.wire import STATES
from tests.membership.swim.kit import claim, node


def record(number: int, state: MemberState = "alive") -> Record:
    return Record(claim(number, state), 0.0, RoundTrip(0.1))


def table(others: int, seed: int = 1) -> Table:
    made = Table(record(0), random.Random(seed))
    for number in range(1, others + 1):
        made.add(record(number))
    return made


@pytest.mark.parametrize(("state", "old"), list(itertools.product(STATES, STATES)))
def test_a_higher_incarnation_wins_whatever_the_states(state: MemberState, old: MemberState) -> None:
    assert beats(state, 5, old, 4)
    assert not beats(state, 4, old, 5)


@pytest.mark.parametrize(("weaker", "stronger"), list(itertools.combinations(STATES, 2)))
def test_at_equal_incarnation_left_beats_dead_beats_suspect_beats_alive(
    weaker: MemberState, stronger: MemberState
) -> None:
    assert beats(stronger, 3, weaker, 3)
    assert not beats(weaker, 3, stronger, 3)


@pytest.mark.parametrize("state", STATES)
def test_the_same_again_is_no_news(state: MemberState) -> None:
    assert not beats(state, 3, state, 3)


@pytest.mark.parametrize("others", [1, 2, 3, 5, 8])
def test_a_round_probes_everybody_once(others: int) -> None:
    members = table(others)
    for _ in range(5):
        probed = [members.next_to_probe() for _ in range(others)]
        assert {one.node_id for one in probed if one} == {node(number) for number in range(1, others + 1)}


def test_rounds_differ_in_their_order() -> None:
    members = table(8)
    rounds = {tuple(one.node_id for _ in range(8) if (one := members.next_to_probe())) for _ in range(10)}
    assert len(rounds) > 5


@pytest.mark.parametrize("others", [2, 3, 4, 7, 8])
def test_nobody_waits_longer_than_one_and_a_half_rounds(others: int) -> None:
    members = table(others)
    last: dict[str, int] = {}
    for step in range(400):
        probed = members.next_to_probe()
        assert probed is not None
        gap = step - last.get(probed.node_id, step)
        assert gap <= others + (others + 1) // 2
        last[probed.node_id] = step


def test_a_newcomer_takes_a_random_place_in_the_round() -> None:
    places = Counter[int]()
    for seed in range(300):
        members = table(3, seed)
        members.add(record(9))
        order = [one.node_id for _ in range(4) if (one := members.next_to_probe())]
        places[order.index(node(9))] += 1
    assert set(places) == {0, 1, 2, 3}
    assert min(places.values()) > 40


def test_one_that_departs_in_mid_round_is_not_probed_and_nobody_is_skipped() -> None:
    members = table(4)
    first = members.next_to_probe()
    assert first is not None
    members.depart(first)
    rest = {one.node_id for _ in range(3) if (one := members.next_to_probe())}
    assert rest == {node(number) for number in range(1, 5)} - {first.node_id}


def test_with_nobody_there_is_nobody_to_probe() -> None:
    assert table(0).next_to_probe() is None


def test_the_size_counts_oneself_and_the_present_but_not_the_dead() -> None:
    members = table(2)
    members.add(record(7, "dead"))
    assert members.size == 3
    assert len(members) == 4


def test_a_sample_has_no_doubles_and_leaves_out_whom_it_should() -> None:
    members = table(6)
    for _ in range(50):
        chosen = [one.node_id for one in members.sample(3, but=node(2))]
        assert len(set(chosen)) == 3
        assert node(2) not in chosen
    assert len(members.sample(99)) == 6


def test_what_is_said_of_a_member_has_its_address_only_while_that_is_current() -> None:
    one = record(1)
    assert one.claim().address == b"address 1"
    assert one.claim(with_address=False).address is None
    one.incarnation = 1
    assert one.claim().address is None
    one.address_at = 1
    one.state = "dead"
    assert one.claim().address is None
