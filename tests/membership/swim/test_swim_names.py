"""Who holds which name: one machine's book, and how two of them come to agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership.swim import Action, Swim, wire
from ppsmoke.membership.swim.table import MAX_JUMP
from ppsmoke.membership.swim.wire import Kind, NameRecord
from tests.membership.swim.kit import (
    CONFIG,
    Cluster,
    acks,
    claim,
    machine,
    meet,
    message,
    name_changes,
    node,
    notes,
    run_until,
    sent,
)


def record(name: str, owner: int, incarnation: int = 0, version: int = 1, *, held: bool = True) -> NameRecord:
    return NameRecord(name, node(owner), 100 + owner, incarnation, version, held)


def tell(swim: Swim, *records: NameRecord, by: int = 1, now: float = 0.0, answer: bool = False) -> list[Action]:
    body = wire.encode_names(answer, "", "", map(wire.encode_name, records))
    return swim.receive(node(by), message(by, Kind.NAMES, body), now)


def holder(swim: Swim, name: str) -> int | None:
    view = swim.resolve(name)
    return None if view is None else int(view.node_id[:2], 16)


def stage_rule(name: str, stage: int | None) -> str | None:
    return None if name == f"pp-stage-{stage}" else f"{name} is not for stage {stage}"


# ---- one's own


def test_a_registered_name_is_held_and_resolves_to_the_own_record() -> None:
    swim = machine()
    assert name_changes(swim.register("pp-x", 1.0)) == [("pp-x", None, node(0))]
    view = swim.resolve("pp-x")
    assert view is not None
    assert (view.node_id, view.names) == (node(0), {"pp-x"})
    assert swim.names() == {"pp-x": node(0)}


def test_registering_again_changes_nothing() -> None:
    swim = machine()
    swim.register("pp-x", 1.0)
    assert name_changes(swim.register("pp-x", 2.0)) == []


def test_a_name_given_up_is_held_by_nobody_and_can_be_taken_again() -> None:
    swim = machine()
    swim.register("pp-x", 1.0)
    assert name_changes(swim.unregister("pp-x", 2.0)) == [("pp-x", node(0), None)]
    assert swim.resolve("pp-x") is None
    assert name_changes(swim.register("pp-x", 3.0)) == [("pp-x", None, node(0))]


def test_giving_up_what_one_does_not_hold_is_fine() -> None:
    assert name_changes(machine().unregister("pp-x", 1.0)) == []


@pytest.mark.parametrize("name", ["", "A", "x" * 65, "a b", "ä"])
def test_what_is_no_name_cannot_be_registered(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        machine().register(name, 1.0)


def test_a_name_that_the_rule_forbids_cannot_be_registered() -> None:
    swim = machine(2, replace(CONFIG, may_hold=stage_rule))
    swim.register("pp-stage-1", 1.0)
    with pytest.raises(ValueError, match="pp-stage-2 is not for stage 1"):
        swim.register("pp-stage-2", 1.0)


def test_too_many_names_are_refused() -> None:
    swim = machine(config=replace(CONFIG, max_names_per_member=2))
    swim.register("a", 1.0)
    swim.register("b", 1.0)
    with pytest.raises(ValueError, match="one name too many"):
        swim.register("c", 1.0)


def test_registering_tells_everybody_at_once_and_introduces_oneself() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = swim.register("pp-x", 1.0)
    for number in (1, 2):
        (_, first), (_, second) = sent(actions, to=number)
        assert first.claims[0].node_id == node(0)
        assert [(one.name, one.owner, one.held) for one in second.body.records] == [("pp-x", node(0), True)]
        assert all(action.reliable for action, _ in sent(actions, to=number))


# ---- others'


def test_a_members_name_is_its_own_to_claim() -> None:
    swim = machine()
    meet(swim, 1)
    assert name_changes(tell(swim, record("pp-x", 1))) == [("pp-x", None, node(1))]
    assert holder(swim, "pp-x") == 1


def test_a_name_can_be_passed_on_by_others() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, record("pp-x", 2), by=1)
    assert holder(swim, "pp-x") == 2


@pytest.mark.parametrize(
    ("first", "second", "held_by"),
    [
        (record("n", 1, 0, 1), record("n", 2, 0, 2), 2),
        (record("n", 1, 0, 9), record("n", 2, 1, 1), 2),
        (record("n", 1, 1, 1), record("n", 2, 0, 9), 1),
        (record("n", 1, 3, 3), record("n", 2, 3, 3), 2),
    ],
)
def test_the_higher_incarnation_then_version_holds_a_name_whatever_comes_first(
    first: NameRecord, second: NameRecord, held_by: int
) -> None:
    for order in ((first, second), (second, first)):
        swim = machine()
        meet(swim, 1, 2)
        for one in order:
            tell(swim, one, by=1)
        assert holder(swim, "n") == held_by


def test_the_last_writer_wins_even_over_a_claim_with_a_high_stamp() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("n", 1, 7, 4))
    assert name_changes(swim.register("n", 1.0)) == [("n", node(1), node(0))]


def test_an_older_claim_of_the_same_owner_changes_nothing() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("n", 1, 0, 2, held=False))
    assert name_changes(tell(swim, record("n", 1, 0, 1))) == []
    assert holder(swim, "n") is None


@pytest.mark.parametrize("end", ["dead", "left"])
def test_the_names_of_one_that_is_gone_vanish_and_the_next_best_claim_holds(end: str) -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, record("n", 1, 5, 1))
    tell(swim, record("n", 2, 0, 1), record("m", 1), by=2)
    assert (holder(swim, "n"), holder(swim, "m")) == (1, 1)
    if end == "left":
        actions = swim.receive(node(1), message(1, claims=[claim(1, "left")]), 1.0)
    else:
        actions = run_until(swim, 9.0, acks(2))
    assert ("n", node(1), node(2)) in name_changes(actions)
    assert holder(swim, "m") is None


def test_one_that_comes_back_in_the_same_life_has_its_names_again() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, record("n", 1))
    swim.receive(node(1), message(1, claims=[claim(1, "left")]), 1.0)
    actions = swim.receive(node(1), message(1, claims=[claim(1, incarnation=1)], incarnation=1), 2.0)
    assert name_changes(actions) == [("n", None, node(1))]


def test_a_new_life_starts_without_names_and_the_old_ones_do_not_come_back() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, record("n", 1))
    actions = swim.receive(node(1), message(1, claims=[claim(1, incarnation=1, life=5)], incarnation=1, life=5), 2.0)
    assert name_changes(actions) == [("n", node(1), None)]
    tell(swim, record("n", 1, 0, 9), by=2)
    assert holder(swim, "n") is None


def test_names_of_strangers_are_not_kept() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("n", 9))
    swim.receive(node(1), message(1, claims=[claim(9)]), 0.0)
    assert holder(swim, "n") is None


# ---- lies


def test_a_claim_that_the_rule_forbids_is_refused_and_noted_once() -> None:
    swim = machine(config=replace(CONFIG, may_hold=stage_rule))
    meet(swim, 1, 2)
    assert notes(tell(swim, record("pp-stage-1", 1))) == [(node(1), "name")]
    assert notes(tell(swim, record("pp-stage-7", 1))) == []
    tell(swim, record("pp-stage-0", 1))
    assert swim.names() == {"pp-stage-0": node(1)}


def test_a_forged_end_of_our_own_name_is_overwritten() -> None:
    swim = machine()
    meet(swim, 1)
    swim.register("n", 0.0)
    actions = tell(swim, record("n", 0, 3, 8, held=False))
    assert notes(actions) == [(node(1), "forged")]
    assert holder(swim, "n") == 0
    (own,) = swim._names.own()
    assert own.stamp > (3, 8)


def test_a_name_that_others_put_into_our_hands_is_given_up_loudly() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("n", 0, 3, 8))
    assert holder(swim, "n") is None
    (own,) = swim._names.own()
    assert (own.held, own.stamp > (3, 8)) == (False, True)


def test_hearsay_far_ahead_is_refused_and_the_owners_own_word_is_not() -> None:
    swim = machine()
    meet(swim, 1, 2)
    far = record("n", 2, 0, MAX_JUMP + 1)
    assert notes(tell(swim, far, by=1)) == [(node(1), "jump")]
    tell(swim, far, by=2)
    assert holder(swim, "n") == 2


def test_a_member_cannot_fill_the_book() -> None:
    swim = machine(config=replace(CONFIG, max_names=20, max_names_per_member=8))
    meet(swim, 1, 2, 3, 4)
    for owner in (1, 2, 3, 4):
        for number in range(30):
            tell(swim, record(f"n{number}", owner), by=owner)
    per_owner = [len(view.names) for view in swim.members().values()]
    assert max(per_owner) <= 8
    assert len(swim._names.records("", "")) == 20


# ---- agreeing


def test_members_with_the_same_names_have_the_same_digest_whatever_the_order() -> None:
    digests = set()
    for order in ((0, 1, 2), (2, 0, 1)):
        swim = machine()
        meet(swim, 1, 2)
        records = [record("a", 1), record("b", 2), record("a", 2, 0, 5, held=False)]
        for at in order:
            tell(swim, records[at])
        digests.add(swim._names.digest())
    assert len(digests) == 1
    assert machine()._names.digest() not in digests


def test_an_equal_digest_is_not_answered_and_a_different_one_with_our_names() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("a", 1))
    same = message(1, Kind.NAMES_DIGEST, swim._names.digest())
    assert not sent(swim.receive(node(1), same, 0.1), Kind.NAMES)
    other = message(1, Kind.NAMES_DIGEST, b"another8")
    ((_, got),) = sent(swim.receive(node(1), other, 0.1), Kind.NAMES)
    assert got.body == wire.Names(True, "", "", (record("a", 1),))


def test_an_answer_brings_back_what_is_newer_or_missing_there() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, record("a", 1), record("b", 1, 0, 4), record("c", 1))
    actions = tell(swim, record("a", 1), record("b", 1, 0, 3), answer=True)
    ((_, got),) = sent(actions, Kind.NAMES)
    assert (got.body.answer, [one.name for one in got.body.records]) == (False, ["b", "c"])


def test_names_that_everybody_missed_agree_within_a_few_comparisons() -> None:
    cluster = Cluster(5)
    cluster.run(1.0)
    for number in range(5):
        cluster[number].register(f"n{number}", cluster.now)
        cluster[number]._names.news.drop((f"n{number}", node(number)))
    cluster.run(6 * CONFIG.names_interval_s)
    assert {tuple(sorted(swim.names().items())) for swim in cluster.swims.values()} == {
        tuple((f"n{number}", node(number)) for number in range(5))
    }


def test_more_names_than_fit_a_message_agree_too() -> None:
    cluster = Cluster(3, replace(CONFIG, max_names_per_member=200))
    cluster.run(1.0)
    for number in range(150):
        cluster[1].register(f"name-{number}", cluster.now)
        cluster[1]._names.news.drop((f"name-{number}", node(1)))
    cluster.run(30 * CONFIG.names_interval_s)
    assert [len(swim.names()) for swim in cluster.swims.values()] == [150, 150, 150]
    assert max(len(send.data) for _, send in cluster.sends) <= 1100


def test_a_new_member_learns_all_names_at_once_with_its_welcome_or_soon_after() -> None:
    cluster = Cluster(3)
    cluster.do(1, cluster[1].register("n", cluster.now))
    cluster.start(3)
    cluster.run(3 * CONFIG.names_interval_s)
    assert holder(cluster[3], "n") == 1


def test_names_registered_before_the_welcome_are_told_with_it() -> None:
    cluster = Cluster(3)
    cluster.stop(0)
    cluster.start(3)
    cluster.do(3, cluster[3].register("n", cluster.now))
    cluster.resume(0)
    cluster.run(CONFIG.join_retry_s + 0.01)
    assert [holder(cluster[number], "n") for number in range(4)] == [3, 3, 3, 3]
