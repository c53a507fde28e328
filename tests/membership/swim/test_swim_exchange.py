"""Joining, and comparing what is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ppsmoke.membership.rules import admit_rule
from ppsmoke.membership.swim import MAX_MESSAGE_BYTES, Action, Joined, JoinRefused, Swim, wire
from ppsmoke.membership.swim.wire import Claim, Kind
from tests.membership.swim.kit import (
    CONFIG,
    Cluster,
    acks,
    changes,
    claim,
    identity,
    machine,
    meet,
    message,
    node,
    notes,
    run_until,
    sent,
    state,
)


def joiner(number: int = 5, *, config: object = CONFIG) -> Swim:
    return Swim(identity(number), config, random.Random(number), 0.0)  # type: ignore[arg-type]


def join_message(number: int, **fields: object) -> bytes:
    return message(number, Kind.JOIN, claims=[claim(number)], **fields)  # type: ignore[arg-type]


def outcome(actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, Joined | JoinRefused)]


# ---- joining


def test_the_first_member_has_joined_at_once() -> None:
    swim = joiner()
    assert outcome(swim.join([], 0.0)) == [Joined()]
    assert set(swim.members()) == {node(5)}


def test_before_joining_nothing_is_due() -> None:
    assert joiner().deadline() == float("inf")


def test_a_join_states_the_own_record_for_certain_to_every_seed() -> None:
    actions = joiner().join([node(0), node(1)], 0.0)
    asked = sent(actions, Kind.JOIN)
    assert [action.to for action, _ in asked] == [node(0), node(1)]
    assert all(action.reliable and got.claims == (claim(5),) for action, got in asked)
    assert outcome(actions) == []


def test_an_unanswered_join_is_sent_again_until_it_is_answered() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    assert len(sent(run_until(swim, 3.01 * CONFIG.join_retry_s), Kind.JOIN)) == 3
    actions = swim.receive(node(0), message(0, Kind.WELCOME, claims=[claim(0)]), 2.0)
    assert outcome(actions) == [Joined()]
    assert not sent(run_until(swim, 4.0, acks(0)), Kind.JOIN)


def test_a_welcome_brings_everything_the_seed_knows() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    known = [claim(0), claim(1), claim(2, "dead", 4), claim(3, "left")]
    swim.receive(node(0), message(0, Kind.WELCOME, claims=known), 0.1)
    assert {view.state for view in swim.members().values()} == {"alive", "dead", "left"}
    assert state(swim, 2) == ("dead", 4)


def test_joined_comes_once() -> None:
    swim = joiner()
    swim.join([node(0), node(1)], 0.0)
    happened = [swim.receive(node(seed), message(seed, Kind.WELCOME, claims=[claim(seed)]), 0.1) for seed in (0, 1, 0)]
    assert [outcome(actions) for actions in happened] == [[Joined()], [], []]


def test_a_welcome_from_one_that_was_not_asked_is_only_news() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    assert outcome(swim.receive(node(1), message(1, Kind.WELCOME, claims=[claim(1)]), 0.1)) == []
    assert state(swim, 1) == ("alive", 0)


def test_a_seed_welcomes_with_all_records_in_messages_that_fit() -> None:
    swim = machine()
    meet(swim, *range(1, 40))
    actions = swim.receive(node(50), join_message(50), 1.0)
    welcome = sent(actions, Kind.WELCOME, to=50)
    told = {said.node_id for _, got in welcome for said in got.claims}
    assert told >= {node(number) for number in [*range(40), 50]}
    assert all(action.reliable and len(action.data) <= MAX_MESSAGE_BYTES for action, _ in welcome)
    assert state(swim, 50) == ("alive", 0)


@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        ({"version": 2}, "version", "protocol version 2, ours is 1"),
        ({"cluster": b"another1"}, "cluster", "another cluster"),
    ],
)
def test_another_version_or_cluster_is_refused_with_the_reason(
    fields: dict[str, object], reason: str, text: str
) -> None:
    swim = machine()
    actions = swim.receive(node(5), join_message(5, **fields), 1.0)
    assert notes(actions) == [(node(5), reason)]
    ((_, got),) = sent(actions, Kind.REFUSE, to=5)
    assert text in str(got.body)
    assert swim.view(node(5)) is None


def test_other_messages_of_another_version_are_dropped_with_one_note_and_no_answer() -> None:
    swim = machine()
    ping = message(5, Kind.PING, wire.encode_ping(1, 0), version=2)
    happened = [swim.receive(node(5), ping, 1.0 + at) for at in range(3)]
    assert [notes(actions) for actions in happened] == [[(node(5), "version")], [], []]
    assert not any(sent(actions, to=5) for actions in happened)


def test_the_admission_rule_refuses_with_its_reason() -> None:
    rule = replace(CONFIG, admit=lambda who, stage: "the plan has no stage 4" if stage == 4 else None)
    swim = machine(config=rule)
    actions = swim.receive(node(5), join_message(5), 1.0)
    ((_, got),) = sent(actions, Kind.REFUSE, to=5)
    assert got.body == "the plan has no stage 4"
    assert notes(actions) == [(node(5), "admission")]
    assert swim.view(node(5)) is None


def test_one_that_was_replaced_is_refused_and_nothing_is_wrong_with_it() -> None:
    refuse = admit_rule(node(0), 9, {node(5): -1})
    swim = machine(config=replace(CONFIG, admit=refuse))
    actions = swim.receive(node(5), join_message(5), 1.0)
    ((_, got),) = sent(actions, Kind.REFUSE, to=5)
    assert "another node is stage" in str(got.body)
    assert notes(actions) == [(node(5), "replaced")]


def test_a_full_cluster_refuses() -> None:
    swim = machine(config=replace(CONFIG, max_members=2))
    meet(swim, 1)
    ((_, got),) = sent(swim.receive(node(5), join_message(5), 1.0), Kind.REFUSE, to=5)
    assert "2 members already" in str(got.body)


@pytest.mark.parametrize("claims", [[], [claim(5), claim(6)], [claim(6)], [claim(5, address=None)]])
def test_a_join_that_does_not_introduce_its_sender_is_noted(claims: list[Claim]) -> None:
    swim = machine()
    actions = swim.receive(node(5), message(5, Kind.JOIN, claims=claims), 1.0)
    assert notes(actions) == [(node(5), "malformed")]
    assert not sent(actions, Kind.WELCOME)


def test_a_refused_join_ends_with_the_reason_and_is_not_tried_again() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    refusal = message(0, Kind.REFUSE, wire.encode_refusal("no room"), version=3, cluster=b"another1")
    assert outcome(swim.receive(node(0), refusal, 0.1)) == [JoinRefused(node(0), "no room")]
    assert not sent(run_until(swim, 5.0), Kind.JOIN)


def test_a_refusal_from_one_that_was_not_asked_or_after_joining_means_nothing() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    refusal = wire.encode_refusal("go away")
    assert outcome(swim.receive(node(1), message(1, Kind.REFUSE, refusal), 0.1)) == []
    swim.receive(node(0), message(0, Kind.WELCOME, claims=[claim(0)]), 0.1)
    assert outcome(swim.receive(node(0), message(0, Kind.REFUSE, refusal), 0.2)) == []


def test_refusals_are_not_answered() -> None:
    swim = machine()
    for fields in ({}, {"version": 2}, {"cluster": b"another1"}):
        actions = swim.receive(node(1), message(1, Kind.REFUSE, b"no", **fields), 0.1)  # type: ignore[arg-type]
        assert not sent(actions, Kind.REFUSE)


def test_one_that_is_alone_asks_its_seeds_again_now_and_then() -> None:
    swim = joiner()
    swim.join([node(0)], 0.0)
    swim.receive(node(0), message(0, Kind.WELCOME, claims=[claim(0)]), 0.1)
    swim.receive(node(0), message(0, claims=[claim(0, "left")]), 0.2)
    assert sent(run_until(swim, 2.2 * CONFIG.exchange_interval_s), Kind.JOIN, to=0)


# ---- comparing


def test_a_comparison_lists_states_without_addresses_in_one_datagram() -> None:
    swim = machine()
    meet(swim, 1, 2)
    compared = sent(run_until(swim, 1.1 * CONFIG.exchange_interval_s, acks(1, 2)), Kind.COMPARE)
    ((action, got),) = compared
    assert not action.reliable
    assert {said.node_id for said in got.claims} == {node(0), node(1), node(2)}
    assert all(said.address is None for said in got.claims)


def test_the_window_of_comparisons_covers_everybody_in_turn() -> None:
    swim = machine()
    everybody = range(1, 60)
    meet(swim, *everybody)
    listed: set[str] = set()
    windows = []
    for _, got in sent(run_until(swim, 4.5 * CONFIG.exchange_interval_s, acks(*everybody)), Kind.COMPARE):
        listed |= {said.node_id for said in got.claims}
        windows.append(got.body)
    assert listed == set(swim.members())
    assert windows[0].first == "0" * 64
    assert "f" * 64 in [window.last for window in windows]


def compare(swim: Swim, *claims: Claim, first: str = "0" * 64, last: str = "f" * 64) -> list[Action]:
    body = wire.encode_compare(first, last)
    return swim.receive(node(1), message(1, Kind.COMPARE, body, claims), 1.0)


def test_a_comparison_of_equals_is_not_answered() -> None:
    swim = machine()
    meet(swim, 1, 2)
    assert not sent(compare(swim, claim(0), claim(1), claim(2)), to=1)


def test_what_the_other_lacks_or_has_older_is_told_with_its_address() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    swim.receive(node(3), message(3, claims=[claim(3, incarnation=2)], incarnation=2), 0.5)
    ((_, got),) = sent(compare(swim, claim(0), claim(1), claim(3)), Kind.NEWS, to=1)
    told = {said.node_id: said for said in got.claims}
    assert told[node(2)].address == b"address 2"
    assert (told[node(3)].incarnation, told[node(3)].address) == (2, b"address 3")


def test_what_lies_outside_the_window_is_not_told() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    swim._core.news.drop(node(3))
    ((_, got),) = sent(compare(swim, claim(0), claim(1), last=node(2)), Kind.NEWS, to=1)
    assert got.claims[0].node_id == node(2)
    assert compare(swim, claim(0), claim(1), claim(2), last=node(2)) == []


def test_what_we_lack_is_asked_for_and_told() -> None:
    swim = machine()
    meet(swim, 1)
    ((_, asked),) = sent(compare(swim, claim(0), claim(1), claim(7, address=None)), Kind.ASK, to=1)
    assert asked.body.node_ids == (node(7),)
    other = machine(1)
    meet(other, 7)
    question = message(0, Kind.ASK, wire.encode_ask([node(7), node(99)]))
    ((_, told),) = sent(other.receive(node(0), question, 1.0), Kind.NEWS, to=0)
    assert told.claims[0] == claim(7)


def test_an_address_that_was_asked_for_in_vain_is_asked_for_again_by_comparing() -> None:
    """Two who lack each other's new address cannot reach each other to ask; a third must tell them."""
    swim = machine()
    meet(swim, 1, 2)
    moved = claim(2, incarnation=1, address=None)
    swim.receive(node(1), message(1, claims=[moved]), 0.5)
    asked = sent(compare(swim, claim(1, address=None), moved), Kind.ASK, to=1)
    assert [got.body for _, got in asked] == [wire.Ask((node(2),))]
    swim.receive(node(1), message(1, claims=[claim(2, incarnation=1, address=b"new")]), 1.1)
    assert not sent(compare(swim, claim(1, address=None), moved), Kind.ASK)


def test_a_comparison_does_not_bring_up_the_dead_whom_the_other_has_forgotten() -> None:
    swim = machine()
    meet(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(2, "dead")]), 0.0)
    assert not sent(compare(swim, claim(0), claim(1)), Kind.NEWS, to=1)
    compare(swim, claim(0), claim(1), claim(8, "dead"))
    assert swim.view(node(8)) is None


def test_one_that_is_back_is_compared_with_at_once() -> None:
    swim = machine()
    meet(swim, 1, 2)
    swim.receive(node(2), message(2, claims=[claim(2, "left")]), 0.5)
    actions = swim.receive(node(2), message(2, claims=[claim(2, incarnation=1)], incarnation=1), 1.0)
    assert changes(actions, 2) == [("left", "alive")]
    assert sent(actions, Kind.COMPARE, to=2)
    assert sent(actions, Kind.NAMES_DIGEST, to=2)


def test_members_that_were_missed_by_all_gossip_are_found_by_comparing() -> None:
    cluster = Cluster(4)
    late = identity(9)
    cluster[1].receive(node(9), message(9, claims=[claim(9)]), cluster.now)
    cluster[1]._core.news.drop(late.node_id)
    cluster.run(3 * CONFIG.exchange_interval_s)
    assert all(node(9) in swim.members() for swim in cluster.swims.values())
