"""Who is asked when, and what silence leads to: one machine, its others played by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership.swim import Action, Detour, Send, Swim, wire
from ppsmoke.membership.swim.probe import revival_pause_s
from ppsmoke.membership.swim.wire import DIRECT, RELAYED, REPEATED, Kind, Message, Ping
from tests.membership.swim.kit import (
    CONFIG,
    acks,
    changes,
    claim,
    machine,
    meet,
    message,
    node,
    run_until,
    sent,
    state,
)


def pings(actions: list[Action], to: int) -> list[tuple[Send, Ping]]:
    return [(action, got.body) for action, got in sent(actions, Kind.PING, to=to) if isinstance(got.body, Ping)]


def ack(number: int, ping: Ping, attempt: int | None = None) -> bytes:
    return message(number, Kind.ACK, wire.encode_ping(ping.seq, ping.attempt if attempt is None else attempt))


def first_ping(swim: Swim, to: int) -> tuple[float, Ping]:
    """When the first ping to `to` goes out, and the ping; anything before stays unanswered."""
    for _ in range(100):
        now = swim.deadline()
        for _, ping in pings(swim.tick(now), to):
            return now, ping
    raise AssertionError("never probed")


def test_somebody_is_probed_in_every_period_and_everybody_in_turn() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    actions = run_until(swim, 30 * CONFIG.probe_interval_s, acks(1, 2, 3))
    counts = [len(pings(actions, number)) for number in (1, 2, 3)]
    assert 29 <= sum(counts) <= 31
    assert max(counts) - min(counts) <= 1


def test_a_probe_is_one_datagram_as_long_as_it_is_answered() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = run_until(swim, 10.0, acks(1, 2))
    asked = pings(actions, 1) + pings(actions, 2)
    assert not any(action.reliable or ping.attempt != DIRECT for action, ping in asked)
    assert not sent(actions, Kind.PING_REQ)


def test_an_answer_gives_a_round_trip() -> None:
    swim = machine()
    meet(swim, 1)
    now, ping = first_ping(swim, 1)
    swim.receive(node(1), ack(1, ping), now + 0.08)
    assert swim.view(node(1)).rtt_s == pytest.approx(0.08)  # type: ignore[union-attr]


def test_a_lost_datagram_is_repeated_on_the_reliable_stream_and_through_all_helpers_before_any_suspicion() -> None:
    swim = machine()
    meet(swim, 1, 2, 3, 4, 5)
    now, ping = first_ping(swim, 1)
    actions = run_until(swim, now + CONFIG.direct_timeout_s[1] + 0.01, acks(2, 3, 4, 5))
    ((action, again),) = pings(actions, 1)
    assert (action.reliable, again) == (True, Ping(ping.seq, REPEATED))
    helpers = sent(actions, Kind.PING_REQ)
    assert len({asked.to for asked, _ in helpers}) == CONFIG.indirect_probes
    assert all(asked.reliable and got.body.target == node(1) for asked, got in helpers)
    left_ms = (CONFIG.probe_timeout_s[0] - CONFIG.direct_timeout_s[1]) * 1000
    assert all(left_ms - 1 <= got.body.budget_ms < CONFIG.probe_timeout_s[0] * 1000 for _, got in helpers)
    assert state(swim, 1) == ("alive", 0)
    swim.receive(node(1), ack(1, again), now + 0.3)
    assert changes(run_until(swim, now + 0.7, acks(1, 2, 3, 4, 5)), 1) == []


def test_the_answer_to_the_repetition_gives_its_own_round_trip() -> None:
    swim = machine()
    meet(swim, 1)
    first_ping(swim, 1)
    repeated, again = first_ping(swim, 1)
    assert again.attempt == REPEATED
    swim.receive(node(1), ack(1, again), repeated + 0.05)
    assert swim.view(node(1)).rtt_s == pytest.approx(0.05)  # type: ignore[union-attr]


def test_a_helpers_answer_saves_the_member_and_reports_a_detour_unless_it_still_answers_itself() -> None:
    for late_answer, reports in ((False, [1]), (True, [])):
        swim = machine()
        meet(swim, 1, 2)
        now, ping = first_ping(swim, 1)
        run_until(swim, now + 0.26, acks(2))
        swim.receive(node(2), ack(2, ping, RELAYED), now + 0.3)
        if late_answer:
            swim.receive(node(1), ack(1, ping, REPEATED), now + 0.31)
        actions = run_until(swim, now + CONFIG.probe_timeout_s[0] + 0.01, acks(1, 2))
        assert changes(actions, 1) == []
        assert [action.in_a_row for action in actions if isinstance(action, Detour)] == reports
        assert swim.health() == 0


def test_detours_are_counted_until_the_member_answers_itself() -> None:
    swim = machine()
    meet(swim, 1, 2)

    def through_2_only(send: Send, got: Message, now: float) -> list[tuple[int, bytes]]:
        if got.kind == Kind.PING_REQ:
            return [(2, message(2, Kind.ACK, wire.encode_ping(got.body.seq, RELAYED)))]  # type: ignore[union-attr]
        return acks(2)(send, got, now)

    actions = run_until(swim, 5.0, through_2_only)
    counts = [action.in_a_row for action in actions if isinstance(action, Detour)]
    assert counts == list(range(1, len(counts) + 1))
    assert len(counts) > 3
    run_until(swim, 7.0, acks(1, 2))
    actions = run_until(swim, 9.0, through_2_only)
    assert next(action.in_a_row for action in actions if isinstance(action, Detour)) == 1
    assert state(swim, 1) == ("alive", 0)


@pytest.mark.parametrize("forger", [2, 3])
def test_an_answer_from_somebody_who_was_not_asked_saves_nobody(forger: int) -> None:
    swim = machine(config=replace(CONFIG, indirect_probes=0))
    meet(swim, 1, 2, 3)
    now, ping = first_ping(swim, 1)
    for attempt in (DIRECT, REPEATED, RELAYED):
        swim.receive(node(forger), ack(forger, ping, attempt), now + 0.05)
    assert ("alive", "suspect") in changes(run_until(swim, now + 0.6, acks(2, 3)), 1)


def test_silence_in_every_way_leads_to_suspicion_at_the_end_of_the_probe() -> None:
    swim = machine()
    meet(swim, 1, 2)
    now, _ = first_ping(swim, 1)
    end = now + CONFIG.probe_timeout_s[0]
    assert changes(run_until(swim, end - 0.01, acks(2)), 1) == []
    assert changes(run_until(swim, end + 0.01, acks(2)), 1) == [("alive", "suspect")]


def test_an_answer_after_the_first_timeout_still_counts() -> None:
    swim = machine()
    meet(swim, 1, 2)
    now, ping = first_ping(swim, 1)
    run_until(swim, now + 0.4, acks(2))
    swim.receive(node(1), ack(1, ping), now + 0.4)
    assert changes(run_until(swim, now + 0.6, acks(1, 2)), 1) == []


def test_a_member_that_contradicts_during_a_probe_is_not_suspected_for_that_probe() -> None:
    swim = machine()
    meet(swim, 1, 2)
    now, _ = first_ping(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(1, incarnation=1)], incarnation=1), now + 0.1)
    assert changes(run_until(swim, now + 0.55, acks(2)), 1) == []


def test_the_crash_of_one_does_not_touch_the_others() -> None:
    swim = machine()
    meet(swim, 1, 2, 3)
    actions = run_until(swim, 20.0, acks(2, 3))
    assert changes(actions, 1) == [("alive", "suspect"), ("suspect", "dead")]
    assert changes(actions, 2) == changes(actions, 3) == []


# ---- waits from the measured round trip


def test_a_slow_path_is_waited_for_as_its_round_trip_says_up_to_the_ceiling() -> None:
    config = replace(CONFIG, direct_timeout_s=(0.1, 2.0), probe_timeout_s=(0.5, 8.0))
    swim = machine(config=config)
    meet(swim, 1)
    for _ in range(60):
        swim.round_trip(node(1), 0.4, 0.0)
    now, ping = first_ping(swim, 1)
    assert pings(run_until(swim, now + 0.39), 1) == []
    assert pings(run_until(swim, now + 0.45), 1)[0][1] == Ping(ping.seq, REPEATED)
    assert changes(run_until(swim, now + 1.5), 1) == []
    assert changes(run_until(swim, now + 1.7), 1) == [("alive", "suspect")]


def test_a_quick_path_is_still_given_the_floor() -> None:
    swim = machine()
    meet(swim, 1)
    for _ in range(60):
        swim.round_trip(node(1), 0.0001, 0.0)
    now, _ = first_ping(swim, 1)
    assert pings(run_until(swim, now + CONFIG.direct_timeout_s[0] - 0.01), 1) == []
    assert pings(run_until(swim, now + CONFIG.direct_timeout_s[0] + 0.01), 1)


# ---- the local health score


def test_a_failed_probe_without_anybody_to_ask_lowers_our_health_and_answers_restore_it() -> None:
    swim = machine()
    meet(swim, 1)
    now, _ = first_ping(swim, 1)
    run_until(swim, now + CONFIG.probe_timeout_s[0] + 0.01)
    assert swim.health() == 1
    run_until(swim, now + 5.0, acks(1))
    assert swim.health() == 0


def test_helpers_that_say_they_had_no_answer_either_keep_us_healthy_and_silent_ones_do_not() -> None:
    for refuses, score in ((True, 0), (False, 2)):
        swim = machine(config=replace(CONFIG, probe_interval_s=0.3))
        meet(swim, 1, 2, 3)
        now, ping = first_ping(swim, 1)
        run_until(swim, now + 0.26, acks(2, 3))
        if refuses:
            for helper in (2, 3):
                swim.receive(node(helper), message(helper, Kind.NACK, wire.encode_nack(ping.seq)), now + 0.26)
        run_until(swim, now + CONFIG.probe_timeout_s[0] + 1e-6, acks(2, 3))
        assert swim.health() == score


def test_the_silence_of_one_already_doubted_says_nothing_new_about_us() -> None:
    swim = machine()
    meet(swim, 1)
    actions = run_until(swim, 5.0)
    assert ("suspect", "dead") in changes(actions, 1)
    assert swim.health() == 1


def test_an_unhealthy_member_probes_more_slowly_and_waits_longer() -> None:
    swim = machine()
    meet(swim, 1, 2)
    swim._core.awareness.change(3)
    now, _ = first_ping(swim, 1)
    assert changes(run_until(swim, now + 3 * CONFIG.probe_timeout_s[0])) == []
    healthy = machine()
    meet(healthy, 1, 2)
    now, _ = first_ping(healthy, 1)
    assert changes(run_until(healthy, now + 3 * CONFIG.probe_timeout_s[0]), 1) == [("alive", "suspect")]


# ---- being a helper and a target


@pytest.mark.parametrize(("attempt", "reliable"), [(DIRECT, False), (REPEATED, True)])
def test_a_ping_is_answered_in_kind(attempt: int, reliable: bool) -> None:
    swim = machine()
    meet(swim, 1)
    actions = swim.receive(node(1), message(1, Kind.PING, wire.encode_ping(77, attempt)), 0.1)
    ((action, got),) = sent(actions, Kind.ACK)
    assert (action.to, action.reliable, got.body) == (node(1), reliable, Ping(77, attempt))


def test_even_a_stranger_and_the_dead_are_answered() -> None:
    swim = machine()
    meet(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(2, "dead")]), 0.0)
    for number in (2, 9):
        assert sent(swim.receive(node(number), message(number, Kind.PING, wire.encode_ping(1, 0)), 1.0), Kind.ACK)


def ask_helper(swim: Swim, target: int, now: float) -> list[Action]:
    return swim.receive(node(1), message(1, Kind.PING_REQ, wire.encode_ping_req(55, node(target), 400)), now)


def test_a_helper_pings_the_target_for_certain_and_passes_its_answer_on() -> None:
    swim = machine()
    meet(swim, 1, 2)
    ((action, got),) = sent(ask_helper(swim, 2, 0.0), Kind.PING)
    assert (action.to, action.reliable) == (node(2), True)
    ((action, passed),) = sent(swim.receive(node(2), ack(2, got.body), 0.05), Kind.ACK)
    assert (action.to, action.reliable, passed.body) == (node(1), True, Ping(55, RELAYED))


def test_a_helper_without_an_answer_says_so_while_it_still_matters_and_passes_a_later_one_on() -> None:
    swim = machine()
    meet(swim, 1, 2)
    ((_, got),) = sent(ask_helper(swim, 2, 0.0), Kind.PING)
    actions = run_until(swim, 0.25, acks(1))
    ((action, refusal),) = sent(actions, Kind.NACK)
    assert (action.to, refusal.body) == (node(1), 55)
    assert sent(swim.receive(node(2), ack(2, got.body), 0.3), Kind.ACK, to=1)


@pytest.mark.parametrize("target", [3, 9])
def test_a_helper_that_cannot_help_says_so_at_once(target: int) -> None:
    swim = machine()
    meet(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(3, "dead")]), 0.0)
    assert sent(ask_helper(swim, target, 0.1), Kind.NACK, to=1)


def test_a_helper_asked_about_itself_answers() -> None:
    swim = machine()
    meet(swim, 1)
    ((_, got),) = sent(ask_helper(swim, 0, 0.0), Kind.ACK, to=1)
    assert got.body == Ping(55, RELAYED)


def test_a_helper_forgets_what_it_was_asked_when_time_is_up() -> None:
    swim = machine()
    meet(swim, 1, 2)
    for _ in range(500):
        ask_helper(swim, 2, 0.0)
    assert len(swim._detector._relays) <= 64
    run_until(swim, 0.5, acks(1))
    assert not swim._detector._relays


# ---- hints


def test_a_closed_connection_is_a_reason_to_probe_at_once_and_no_proof() -> None:
    swim = machine()
    meet(swim, 1, 2)
    actions = swim.link_down(node(1), 0.01, left=False)
    assert len(pings(actions, 1)) == 1
    assert changes(actions, 1) == []


def test_a_closed_connection_with_a_goodbye_is_leaving_even_after_a_suspicion() -> None:
    swim = machine()
    meet(swim, 1, 2)
    swim.receive(node(2), message(2, claims=[claim(1, "suspect")]), 0.01)
    assert changes(swim.link_down(node(1), 0.02, left=True), 1) == [("suspect", "left")]


def test_many_hints_about_one_member_are_one_probe() -> None:
    swim = machine()
    meet(swim, 1, 2)
    assert sum(len(pings(swim.link_down(node(1), 0.01, left=False), 1)) for _ in range(5)) == 1


def test_a_connection_from_one_thought_dead_is_a_reason_to_call_it_and_say_so() -> None:
    swim = machine()
    meet(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(2, "dead", 4)]), 0.0)
    ((_, got),) = sent(swim.link_up(node(2), 1.0), Kind.PING, to=2)
    assert (got.claims[0].state, got.claims[0].incarnation) == ("dead", 4)


def test_hints_about_strangers_and_oneself_do_nothing() -> None:
    swim = machine()
    for peer in (node(9), node(0), "nonsense"):
        assert swim.link_up(peer, 1.0) == []
        assert swim.link_down(peer, 1.0, left=False) == []
        assert swim.link_down(peer, 1.0, left=True) == []
        assert swim.round_trip(peer, 0.1, 1.0) == []


# ---- calling the dead


def test_the_dead_are_called_again_and_those_who_left_are_not() -> None:
    swim = machine()
    meet(swim, 1)
    swim.receive(node(1), message(1, claims=[claim(2, "dead"), claim(3, "left")]), 0.0)
    actions = run_until(swim, 10.0, acks(1))
    assert 8 <= len(pings(actions, 2)) <= 11
    assert not sent(actions, to=3)


def test_many_dead_are_called_one_at_a_time() -> None:
    swim = machine()
    meet(swim, 1)
    for number in range(2, 42):
        swim.receive(node(1), message(1, claims=[claim(number, "dead")]), 0.0)
    actions = run_until(swim, 10.0, acks(1))
    assert sum(len(pings(actions, number)) for number in range(2, 42)) <= 11


@pytest.mark.parametrize(
    ("dead_for_s", "pause_s"), [(0, 2), (59, 2), (60, 4), (119, 4), (120, 8), (500, 32), (86400, 32)]
)
def test_the_longer_one_is_dead_the_less_often_it_is_called(dead_for_s: float, pause_s: float) -> None:
    assert revival_pause_s(2.0, dead_for_s) == pause_s


# ---- a detector that was away


def test_a_detector_that_was_starved_holds_nothing_against_others() -> None:
    swim = machine()
    meet(swim, 1, 2)
    now, ping = first_ping(swim, 1)
    actions = swim.tick(now + 30.0)
    assert changes(actions) == []
    assert swim.health() == 1
    swim.receive(node(1), ack(1, ping), now + 30.01)
    assert changes(run_until(swim, now + 40.0, acks(1, 2))) == []


def test_a_suspect_gets_the_time_on_top_for_which_we_were_away() -> None:
    swim = machine()
    meet(swim, 1, 2)
    swim.receive(node(1), message(1, claims=[claim(2, "suspect")]), 0.05)
    actions = swim.tick(20.0)
    assert changes(actions, 2) == []
    swim.receive(node(2), message(2, claims=[claim(2, incarnation=1)], incarnation=1), 20.1)
    assert state(swim, 2) == ("alive", 1)


def test_being_away_is_noticed_also_when_a_message_comes_before_the_tick() -> None:
    swim = machine()
    meet(swim, 1, 2)
    first_ping(swim, 1)
    swim.receive(node(2), message(2), 30.0)
    assert swim.health() == 1
    assert changes(swim.tick(30.0)) == []


def test_all_that_has_piled_up_meanwhile_is_one_absence() -> None:
    swim = machine()
    meet(swim, 1, 2)
    now, _ = first_ping(swim, 1)
    for number in (1, 2) * 5:
        swim.receive(node(number), message(number), now + 30.0)
    assert swim.health() == 1
    assert swim._core.now == now + 30.0
    assert changes(run_until(swim, now + 31.0, acks(2)), 1) == [("alive", "suspect")]


def test_one_that_was_away_for_long_makes_itself_heard_at_once() -> None:
    swim = machine()
    meet(swim, 1, 2)
    assert {action.to for action, _ in sent(swim.tick(30.0), Kind.COMPARE)} == {node(1), node(2)}


def test_a_tick_that_is_a_little_late_is_ordinary() -> None:
    swim = machine()
    meet(swim, 1)
    for _ in range(20):
        now = swim.deadline() + CONFIG.late_s / 2
        for _, ping in pings(swim.tick(now), 1):
            swim.receive(node(1), ack(1, ping), now)
    assert swim.health() == 0


def test_a_tick_that_is_too_early_does_nothing() -> None:
    swim = machine()
    meet(swim, 1)
    run_until(swim, 5.0, acks(1))
    assert swim.tick(swim.deadline() - 0.001) == []
