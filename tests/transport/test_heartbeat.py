from __future__ import annotations

from ppsmoke.transport.heartbeat import Heartbeats, LinkSilent, SendPing


def test_every_link_is_pinged_every_period_with_a_growing_serial() -> None:
    beats = Heartbeats()
    beats.add("a", 0.0)
    beats.add("b", 0.0)
    assert beats.tick(1.0) == [SendPing("a", 1), SendPing("b", 1)]
    assert beats.tick(2.0) == [SendPing("a", 2), SendPing("b", 2)]


def test_a_silent_link_is_lost_at_the_limit_and_then_forgotten() -> None:
    beats = Heartbeats(silence_limit_s=10.0)
    beats.add("a", 0.0)
    beats.add("b", 0.0)
    for second in range(1, 10):
        beats.heard("b", second)
        assert all(isinstance(action, SendPing) for action in beats.tick(float(second)))
    assert beats.tick(10.0)[0] == LinkSilent("a", 10.0)
    assert beats.tick(11.0) == [SendPing("b", 11)]


def test_whatever_is_heard_counts() -> None:
    beats = Heartbeats(silence_limit_s=3.0)
    beats.add("a", 0.0)
    for second in range(1, 30):
        beats.heard("a", second)
        assert beats.tick(float(second)) == [SendPing("a", second)]


def test_a_starved_process_does_not_accuse_its_peers() -> None:
    beats = Heartbeats(silence_limit_s=10.0)
    beats.add("a", 0.0)
    for second in (1.0, 2.0, 3.0):
        beats.tick(second)
    assert beats.tick(60.0) == [SendPing("a", 4)], "it was us who did not run for 57 s"
    for second in range(61, 66):
        assert all(isinstance(action, SendPing) for action in beats.tick(float(second)))
    silent = [action for second in range(66, 70) for action in beats.tick(float(second))]
    assert [type(action) for action in silent].count(LinkSilent) == 1, "and then the limit holds again"


def test_a_process_starved_before_its_first_tick_does_not_accuse_either() -> None:
    beats = Heartbeats(silence_limit_s=10.0)
    beats.add("a", 0.0)
    assert beats.tick(60.0) == [SendPing("a", 1)]


def test_a_tick_a_little_late_changes_nothing() -> None:
    beats = Heartbeats(silence_limit_s=10.0)
    beats.add("a", 0.0)
    now = 0.0
    for _ in range(5):
        now += 1.9
        beats.tick(now)
    assert beats.tick(10.0) == [LinkSilent("a", 10.0)]


def test_a_link_made_while_we_were_starved_is_not_heard_in_the_future() -> None:
    beats = Heartbeats(silence_limit_s=10.0)
    assert beats.tick(0.0) == []
    beats.add("a", 49.0)
    beats.tick(50.0)
    ends = [second for second in range(51, 70) if any(isinstance(a, LinkSilent) for a in beats.tick(float(second)))]
    assert ends == [60]


def test_the_round_trip_is_that_of_the_newest_ping() -> None:
    beats = Heartbeats()
    beats.add("a", 0.0)
    assert beats.rtt_s("a") is None
    beats.tick(1.0)
    beats.tick(2.0)
    beats.pong("a", 1, 2.5)
    assert beats.rtt_s("a") is None
    beats.pong("a", 2, 2.25)
    assert beats.rtt_s("a") == 0.25
    beats.pong("a", 2, 9.0)
    assert beats.rtt_s("a") == 0.25


def test_news_of_unknown_links_is_ignored() -> None:
    beats = Heartbeats()
    beats.heard("x", 1.0)
    beats.pong("x", 1, 1.0)
    beats.remove("x")
    assert beats.rtt_s("x") is None
    assert beats.tick(1.0) == []
