from __future__ import annotations

from ppsmoke.membership.redial import DEAD_PAUSE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_AT_ONCE, Redial


def test_one_dial_a_peer_at_a_time() -> None:
    redial = Redial()
    assert redial.begin("a", 0.0)
    assert not redial.begin("a", 100.0)
    assert redial.begin("b", 0.0)
    redial.linked("a")
    assert redial.begin("a", 100.0)


def test_failures_make_the_pauses_longer_and_a_link_ends_them() -> None:
    redial, now, pauses = Redial(), 0.0, []
    for _ in range(10):
        assert redial.begin("a", now)
        redial.failed("a", now)
        pause = 0.0
        while not redial.begin("a", now + pause):
            pause += FIRST_PAUSE_S
        redial._dialling.discard("a")
        pauses.append(pause)
        now += pause
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    redial.linked("a")
    assert redial.begin("a", now)


def test_the_dead_are_left_alone_for_a_while() -> None:
    redial = Redial()
    redial.died("a", 10.0)
    assert not redial.begin("a", 10.0 + DEAD_PAUSE_S - 0.1)
    assert redial.begin("a", 10.0 + DEAD_PAUSE_S)
    redial.failed("a", 20.0)
    assert not redial.begin("a", 20.0 + DEAD_PAUSE_S)


def test_many_dials_at_once_wait_for_each_other() -> None:
    redial = Redial()
    assert all(redial.begin(f"peer {number}", 0.0) for number in range(MAX_AT_ONCE))
    assert not redial.begin("one more", 0.0)
    redial.failed("peer 0", 0.0)
    assert redial.begin("one more", 0.0)
