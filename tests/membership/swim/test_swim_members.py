"""What becomes of claims: one machine, and messages written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership.swim import Action, Swim
from ppsmoke.membership.swim.table import MAX_JUMP
from ppsmoke.membership.swim.wire import Claim, Kind
from tests.membership.swim.kit import (
    CONFIG,
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

SILENT_S = CONFIG.probe_timeout_s[0] + CONFIG.suspicion_s[0]


def tell(swim: Swim, said: Claim, *, by: int = 1, now: float = 0.0) -> list[Action]:
    """Member `by` claims something; when it is about itself, it is at the incarnation that it claims."""
    incarnation = said.incarnation if said.node_id == node(by) else 0
    return swim.receive(node(by), message(by, claims=[said], incarnation=incarnation), now)


# ---- hearing of members


def test_a_member_heard_of_appears_alive_with_all_that_was_said() -> None:
    swim = machine()
    actions = tell(swim, claim(2, incarnation=4))
    assert changes(actions, 2) == [(None, "alive")]
    view = swim.view(node(2))
    assert view is not None
    assert (view.incarnation, view.life, view.stage_index, view.address) == (4, 102, 1, b"address 2")


def test_a_member_without_an_address_is_asked_about_before_it_is_one() -> None:
    swim = machine()
    meet(swim, 1)
    actions = tell(swim, claim(2, address=None))
    assert swim.view(node(2)) is None
    ((_, asked),) = sent(actions, Kind.ASK, to=1)
    assert asked.body.node_ids == (node(2),)


def test_a_stranger_that_sends_something_is_asked_who_it_is() -> None:
    swim = machine()
    actions = swim.receive(node(5), message(5), 0.0)
    assert swim.view(node(5)) is None
    ((_, asked),) = sent(actions, Kind.ASK, to=5)
    assert asked.body.node_ids == (node(5),)


def test_a_suspect_heard_of_first_is_known_as_suspect_and_may_contradict() -> None:
    swim = machine()
    actions = tell(swim, claim(2, "suspect", 3, address=b"there"))
    assert changes(actions, 2) == [(None, "alive"), ("alive", "suspect")]
    tell(swim, claim(2, incarnation=4))
    assert state(swim, 2) == ("alive", 4)


def test_the_dead_are_remembered_even_when_first_heard_of_dead() -> None:
    swim = machine()
    tell(swim, claim(2, "dead", 3))
    tell(swim, claim(2, "alive", 3))
    assert state(swim, 2) == ("dead", 3)


@pytest.mark.parametrize("old", ["alive", "suspect", "dead", "left"])
def test_old_gossip_changes_nothing(old: str) -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, incarnation=5))
    assert changes(tell(swim, claim(2, old, 4))) == []
    assert state(swim, 2) == ("alive", 5)


@pytest.mark.parametrize("gone", ["dead", "left"])
def test_old_gossip_does_not_bring_back_one_that_is_gone(gone: str) -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, gone, 5))
    for incarnation in (0, 4, 5):
        tell(swim, claim(2, "alive", incarnation))
        tell(swim, claim(2, "suspect", incarnation))
    assert state(swim, 2) == (gone, 5)


def test_a_higher_incarnation_brings_the_dead_back() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, "dead", 5))
    actions = tell(swim, claim(2, "alive", 6))
    assert changes(actions, 2) == [("dead", "alive")]


def test_a_new_life_with_a_new_address_replaces_the_old_one() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, incarnation=1, life=999, address=b"elsewhere"))
    view = swim.view(node(2))
    assert view is not None
    assert (view.state, view.life, view.address) == ("alive", 999, b"elsewhere")


def test_an_address_that_belongs_to_an_older_incarnation_is_not_passed_on_as_current() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = tell(swim, claim(2, "suspect", 3))
    assert node(2) in [about for _, asked in sent(actions, Kind.ASK, to=1) for about in asked.body.node_ids]
    passed_on = [said for _, got in sent(run_until(swim, 0.3)) for said in got.claims if said.node_id == node(2)]
    assert passed_on
    assert all(said.address is None for said in passed_on)
    tell(swim, claim(2, "suspect", 3, address=b"new"))
    view = swim.view(node(2))
    assert view is not None
    assert view.address == b"new"


# ---- suspicion


def test_a_suspect_that_does_not_contradict_is_dead_when_its_time_is_up() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, "suspect"), by=1)
    actions = run_until(swim, 5.0, acks(1))
    assert ("suspect", "dead") in changes(actions, 2)
    assert changes(actions, 1) == []


def test_a_suspect_that_contradicts_is_alive_and_stays_so() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, "suspect"), by=1)
    tell(swim, claim(2, incarnation=1), by=2)
    assert changes(run_until(swim, 5.0, acks(1, 2)), 2) == []
    assert state(swim, 2) == ("alive", 1)


def test_confirmations_from_others_bring_the_end_nearer_and_repeated_ones_do_not() -> None:
    def ends(*accusers: int) -> float:
        swim = machine()
        meet(swim, 1, 2, 3, 4)
        for accuser in accusers:
            tell(swim, claim(2, "suspect", accuser=node(accuser)), by=1)
        for deadline in range(1000):
            now = max(swim.deadline(), deadline / 1000)
            if ("suspect", "dead") in changes(swim.tick(now), 2):
                return now
            for number in (1, 3, 4):
                swim.receive(node(number), message(number), now)
        raise AssertionError("never dead")

    alone, again, confirmed = ends(1), ends(1, 1, 1), ends(1, 3, 4)
    assert again == pytest.approx(alone, abs=0.4)
    assert confirmed < alone - 0.1


def test_a_witness_that_is_no_member_counts_as_the_one_who_names_it() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    tell(swim, claim(2, "suspect", accuser=node(1)), by=1)
    before = swim._core.table.get(node(2)).suspicion.ends  # type: ignore[union-attr]
    for invented in (node(77), node(2), node(78)):
        tell(swim, claim(2, "suspect", accuser=invented), by=1)
    assert swim._core.table.get(node(2)).suspicion.ends == before  # type: ignore[union-attr]


def test_one_who_hears_of_a_suspicion_in_a_small_cluster_probes_the_suspect_at_once_and_tells_it() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = tell(swim, claim(2, "suspect"), by=1)
    ((_, ping),) = sent(actions, Kind.PING, to=2)
    assert (ping.claims[0].node_id, ping.claims[0].state) == (node(2), "suspect")


def test_a_suspect_is_told_at_once_by_the_one_who_doubts() -> None:
    swim = machine()
    meet(swim, 2)
    for action, got in sent(run_until(swim, 1.5), Kind.NEWS, to=2):
        if action.reliable:
            assert (got.claims[0].node_id, got.claims[0].state) == (node(2), "suspect")
            return
    raise AssertionError("the suspect was not told")


# ---- deaths that others report


def test_a_death_is_not_believed_of_one_heard_from_just_now_but_starts_a_probe() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = tell(swim, claim(2, "dead"), by=1)
    assert changes(actions, 2) == [("alive", "suspect")]
    assert sent(actions, Kind.PING, to=2)


def test_a_lie_about_a_living_member_ends_with_its_contradiction() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, "dead"), by=1)
    tell(swim, claim(2, incarnation=1), by=2)
    actions = run_until(swim, 10.0, acks(1, 2))
    assert changes(actions, 2) == []
    assert state(swim, 2) == ("alive", 1)


@pytest.mark.parametrize("verdict", ["dead", "left"])
def test_a_reported_end_is_believed_when_our_own_probe_fails_too(verdict: str) -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, verdict), by=1)
    actions = run_until(swim, CONFIG.probe_timeout_s[0] + 0.01, acks(1))
    assert changes(actions, 2) == [("suspect", verdict)]


def test_a_death_is_believed_at_once_of_a_suspect_that_is_silent_for_us_too() -> None:
    swim = machine()
    meet(swim, 1, 2, 3, 4)
    tell(swim, claim(2, "suspect"), by=1, now=SILENT_S)
    actions = tell(swim, claim(2, "dead"), by=1, now=SILENT_S + 0.01)
    assert changes(actions, 2) == [("suspect", "dead")]


def test_a_suspect_that_we_hear_is_not_declared_dead_by_us_while_it_may_yet_contradict() -> None:
    swim = machine()
    meet(swim, 1, 2, 3, 4)
    for accuser in (1, 3, 4):
        tell(swim, claim(2, "suspect"), by=accuser)
    least = CONFIG.suspicion_s[0]
    run_until(swim, 0.9 * least, acks(1, 3, 4))
    told = swim.receive(node(2), message(2), 0.9 * least)
    assert [got.claims[0].state for _, got in sent(told, Kind.NEWS, to=2)] == ["suspect"]
    assert changes(run_until(swim, 1.8 * least, acks(1, 3, 4)), 2) == []
    assert changes(run_until(swim, 2.0 * least, acks(1, 3, 4)), 2) == [("suspect", "dead")]


def test_one_that_speaks_but_never_contradicts_is_dead_in_the_end() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, "suspect"), by=1)
    end = 4 * CONFIG.suspicion_s[1]
    now, died = 0.0, None
    while now < 2 * end and died is None:
        now += 0.1
        actions = run_until(swim, now, acks(1)) + swim.receive(node(2), message(2), now)
        died = now if ("suspect", "dead") in changes(actions, 2) else None
    assert died == pytest.approx(end, abs=0.2)
    assert swim.view(node(2)).reason == "speaks, but does not hear us"  # type: ignore[union-attr]


def test_a_reported_death_is_not_believed_of_one_heard_while_our_own_probe_failed() -> None:
    swim = machine()
    meet(swim, 1, 2)
    tell(swim, claim(2, "dead"), by=1)
    run_until(swim, 0.3, acks(1))
    swim.receive(node(2), message(2), 0.3)
    assert changes(run_until(swim, CONFIG.probe_timeout_s[0] + 0.1, acks(1)), 2) == []
    tell(swim, claim(2, incarnation=1), by=2, now=0.7)
    assert state(swim, 2) == ("alive", 1)


def test_its_own_goodbye_is_believed_at_once_and_is_not_death() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = tell(swim, claim(2, "left"), by=2)
    assert changes(actions, 2) == [("alive", "left")]


def test_leaving_overrides_a_death_at_the_same_incarnation_and_not_the_other_way_round() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, "dead", 1))
    tell(swim, claim(2, "left", 1))
    tell(swim, claim(2, "dead", 1))
    assert state(swim, 2) == ("left", 1)


# ---- about oneself


@pytest.mark.parametrize("lie", ["suspect", "dead", "left"])
def test_what_is_said_of_us_is_contradicted_with_a_higher_incarnation_at_once(lie: str) -> None:
    swim = machine()
    meet(swim, 1)
    actions = tell(swim, claim(0, lie, 3), by=1)
    assert state(swim, 0) == ("alive", 4)
    answers = [got.claims[0] for action, got in sent(actions, Kind.NEWS, to=1) if action.reliable]
    assert [(said.node_id, said.state, said.incarnation) for said in answers] == [(node(0), "alive", 4)]
    assert swim.health() == 1


def test_what_was_contradicted_already_is_not_contradicted_again() -> None:
    swim = machine()
    meet(swim, 1)
    for _ in range(5):
        tell(swim, claim(0, "suspect", 0), by=1)
    assert state(swim, 0) == ("alive", 1)


def test_the_truth_about_us_moves_nothing() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(0, "alive", 0), by=1)
    assert state(swim, 0) == ("alive", 0)


def test_a_record_of_an_earlier_life_is_outbid() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(0, "alive", 0, life=1), by=1)
    assert state(swim, 0) == ("alive", 1)
    assert swim.health() == 0


def test_many_lies_in_one_message_are_answered_once() -> None:
    swim = machine()
    meet(swim, 1)
    lies = [claim(0, "suspect", incarnation) for incarnation in range(20)]
    actions = swim.receive(node(1), message(1, claims=lies), 0.0)
    assert len(sent(actions, Kind.NEWS, to=1)) == 1


# ---- who is behind


def test_one_that_does_not_know_that_it_is_dead_is_told() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, "dead", 3), by=1)
    actions = swim.receive(node(2), message(2, incarnation=3), 1.0)
    ((_, got),) = sent(actions, Kind.NEWS, to=2)
    assert (got.claims[0].node_id, got.claims[0].state, got.claims[0].incarnation) == (node(2), "dead", 3)


def test_one_that_is_behind_is_told_now_and_then_and_not_for_every_message() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, "dead", 3), by=1)
    told = sum(len(sent(swim.receive(node(2), message(2), 1 + at / 1000), Kind.NEWS, to=2)) for at in range(100))
    assert 1 <= told <= 3


def test_one_that_is_ahead_is_asked_for_its_record() -> None:
    swim = machine()
    meet(swim, 2)
    actions = swim.receive(node(2), message(2, incarnation=1), 1.0)
    ((_, got),) = sent(actions, Kind.ASK, to=2)
    assert got.body.node_ids == (node(2),)


# ---- lies with consequences


def test_hearsay_far_ahead_of_what_is_known_is_refused_and_noted_and_the_members_own_word_is_not() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = tell(swim, claim(2, "alive", MAX_JUMP + 1), by=1)
    assert state(swim, 2) == ("alive", 0)
    assert notes(actions) == [(node(1), "jump")]
    tell(swim, claim(2, "alive", MAX_JUMP + 1), by=2)
    assert state(swim, 2) == ("alive", MAX_JUMP + 1)


def test_a_claim_about_oneself_ahead_of_the_message_that_carries_it_is_broken_or_forged() -> None:
    swim = machine()
    meet(swim, 1)
    actions = swim.receive(node(1), message(1, claims=[claim(1, incarnation=2**50, address=None)]), 0.1)
    assert notes(actions) == [(node(1), "forged")]
    assert state(swim, 1) == ("alive", 0)


@pytest.mark.parametrize("said", [claim(2, "alive", 5, address=None), claim(9, address=None)])
def test_two_members_do_not_keep_each_other_busy_about_a_record_that_neither_has(said: Claim) -> None:
    swim = machine()
    meet(swim, 1, 2)
    asked = [
        action
        for _ in range(200)
        for number in (1, 2)
        for action, _ in sent(swim.receive(node(number), message(number, claims=[said]), 0.1), Kind.ASK)
    ]
    assert len(asked) <= 2


def test_a_member_cannot_be_made_to_use_up_its_incarnations() -> None:
    swim = machine()
    meet(swim, 1)
    assert notes(tell(swim, claim(0, "dead", 2**62), by=1)) == [(node(1), "jump")]
    assert state(swim, 0) == ("alive", 0)


def test_hearsay_cannot_make_a_member_another_stage() -> None:
    swim = machine()
    meet(swim, 1, 2)
    assert notes(tell(swim, claim(2, incarnation=1, stage_index=7), by=1)) == [(node(1), "forged")]
    assert swim.view(node(2)).stage_index == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("impossible", ["suspect", "dead"])
def test_nobody_is_suspect_or_dead_by_its_own_word(impossible: str) -> None:
    swim = machine()
    meet(swim, 1)
    assert notes(tell(swim, claim(1, impossible), by=1)) == [(node(1), "forged")]
    assert state(swim, 1) == ("alive", 0)


def test_who_may_not_be_a_member_is_none_by_hearsay_either() -> None:
    admit = {node(1): None, node(0): None}.__contains__
    swim = machine(config=replace(CONFIG, admit=lambda who, stage: None if admit(who) else "not in the plan"))
    meet(swim, 1)
    assert notes(tell(swim, claim(9), by=1)) == [(node(1), "admission")]
    assert swim.view(node(9)) is None


def test_a_full_table_forgets_the_longest_dead_and_never_the_living() -> None:
    swim = machine(config=replace(CONFIG, max_members=4))
    meet(swim, 1)
    tell(swim, claim(2, "dead"), now=1.0)
    tell(swim, claim(3, "dead"), now=2.0)
    tell(swim, claim(4), now=3.0)
    assert set(swim.members()) == {node(0), node(1), node(3), node(4)}
    tell(swim, claim(5), now=4.0)
    assert notes(tell(swim, claim(6), now=5.0)) == [(node(1), "full")]
    assert set(swim.members()) == {node(0), node(1), node(4), node(5)}


def test_the_dead_are_forgotten_after_their_time() -> None:
    swim = machine(config=replace(CONFIG, dead_memory_s=60.0))
    meet(swim, 1)
    tell(swim, claim(2, "dead"))
    run_until(swim, 50.0, acks(1))
    assert swim.view(node(2)) is not None
    run_until(swim, 70.0, acks(1))
    assert swim.view(node(2)) is None


# ---- moving and leaving


def test_a_new_address_is_news_with_its_own_incarnation() -> None:
    swim = machine()
    meet(swim, 1)
    actions = swim.update_address(b"moved", 1.0)
    assert changes(actions, 0) == [("alive", "alive")]
    assert state(swim, 0) == ("alive", 1)
    spread = [said for _, got in sent(run_until(swim, 1.5), Kind.NEWS) for said in got.claims]
    assert (spread[0].node_id, spread[0].address) == (node(0), b"moved")


def test_the_same_address_again_is_no_news() -> None:
    swim = machine()
    assert swim.update_address(identity(0).address, 1.0) == []
    assert state(swim, 0) == ("alive", 0)


def test_an_address_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="600 bytes"):
        machine().update_address(b"x" * 600, 1.0)


def test_leaving_also_tells_those_who_died_lately_and_not_the_long_dead_or_those_who_left() -> None:
    swim = machine()
    meet(swim, 1)
    tell(swim, claim(2, "dead"), now=0.0)
    run_until(swim, 100.0, acks(1))
    tell(swim, claim(3, "dead"), now=100.0)
    tell(swim, claim(4, "left"), now=100.0)
    assert {action.to for action, _ in sent(swim.leave(101.0))} == {node(1), node(3)}


def test_leaving_tells_everybody_present_for_certain_and_then_nothing_comes_any_more() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = swim.leave(1.0)
    goodbyes = [(action.to, got.claims[0].state) for action, got in sent(actions) if action.reliable]
    assert sorted(goodbyes) == [(node(1), "left"), (node(2), "left")]
    assert swim.receive(node(1), message(1, claims=[claim(0, "dead", 9)]), 2.0) == []
    assert swim.tick(99.0) == []
    assert swim.deadline() == float("inf")
    assert state(swim, 0) == ("left", 0)


def test_on_a_slow_path_the_suspect_gets_several_round_trips_but_never_more_than_the_most() -> None:
    ends = []
    for rtt_s in (0.0, 0.2, 5.0):
        swim = machine()
        meet(swim, 1, 2, 3, 4)
        for _ in range(60):
            swim.round_trip(node(2), rtt_s, 0.0)
        for accuser in (1, 3, 4):
            tell(swim, claim(2, "suspect"), by=accuser)
        ends.append(swim._core.table.get(node(2)).suspicion.ends)  # type: ignore[union-attr]
    assert ends == pytest.approx([CONFIG.suspicion_s[0], 8 * 0.2, CONFIG.suspicion_s[1]], abs=0.01)


def test_a_doubt_that_only_comes_back_to_us_confirms_nothing() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    now = 0.0
    while state(swim, 2) == ("alive", 0):
        now = swim.deadline()
        run_until(swim, now, acks(1, 3))
    suspicion = swim._core.table.get(node(2)).suspicion  # type: ignore[union-attr]
    assert suspicion is not None
    alone = suspicion.ends
    for relay in (1, 3):
        tell(swim, claim(2, "suspect", accuser=node(0)), by=relay, now=now)
    assert suspicion.ends == alone
    tell(swim, claim(2, "suspect"), by=1, now=now)
    assert suspicion.ends < alone


def test_a_reported_death_counts_as_its_accusers_doubt() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    tell(swim, claim(2, "suspect"), by=1)
    suspicion = swim._core.table.get(node(2)).suspicion  # type: ignore[union-attr]
    assert suspicion is not None
    alone = suspicion.ends
    tell(swim, claim(2, "dead"), by=3)
    assert suspicion.ends < alone


def test_what_a_seed_tells_is_not_passed_on_again_and_other_news_is() -> None:
    for kind, passed_on in ((Kind.WELCOME, False), (Kind.NEWS, True)):
        swim = machine()
        swim.receive(node(1), message(1, kind, claims=[claim(1), claim(2)]), 0.0)
        told = {said.node_id for _, got in sent(run_until(swim, 1.0, acks(1, 2))) for said in got.claims}
        assert (node(2) in told) is passed_on
