from __future__ import annotations

import pytest

from ppsmoke.membership.swim.broadcast import Broadcasts, transmissions


@pytest.mark.parametrize(
    ("members", "times"),
    [(1, 6), (2, 6), (3, 6), (6, 6), (9, 6), (10, 8), (99, 8), (100, 12), (128, 12)],
)
def test_news_is_sent_often_enough_in_the_smallest_clusters_and_logarithmically_in_large_ones(
    members: int, times: int
) -> None:
    assert transmissions(members, 4.0, 6) == times


def test_rounding_is_always_up() -> None:
    assert transmissions(2, 4.0, 0) == 4
    assert transmissions(9, 1.5, 0) == 2


def test_what_was_sent_least_goes_first_and_newer_before_older() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "", b"old")
    assert news.take(100, 3) == [b"old"]
    news.put("b", "", b"new")
    news.put("c", "", b"newest")
    assert news.take(100, 3) == [b"newest", b"new", b"old"]


def test_a_piece_is_dropped_after_its_last_transmission() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "", b"x")
    assert [news.take(100, 3) for _ in range(7)] == [[b"x"]] * 6 + [[]]
    assert not news


def test_what_does_not_fit_waits_while_smaller_pieces_go() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "", b"small")
    news.put("b", "", b"large" * 10)
    assert news.take(20, 3) == [b"small"]
    assert news.take(100, 3) == [b"large" * 10, b"small"]


def test_the_pieces_taken_never_exceed_the_room() -> None:
    news = Broadcasts(4.0, 6)
    for number in range(50):
        news.put(number, "", b"x" * (10 + number))
    for room in (0, 9, 10, 100, 1000):
        assert sum(map(len, news.take(room, 3))) <= room


def test_newer_news_about_the_same_replaces_the_older_and_starts_anew() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "", b"suspect")
    for _ in range(5):
        news.take(100, 3)
    news.put("a", "", b"alive")
    assert [news.take(100, 3) for _ in range(7)] == [[b"alive"]] * 6 + [[]]


def test_several_aspects_of_a_subject_live_side_by_side_and_are_dropped_together() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "by x", b"1")
    news.put("a", "by y", b"2")
    news.put("b", "", b"3")
    assert len(news) == 3
    news.drop("a")
    assert news.take(100, 3) == [b"3"]


def test_a_subject_that_the_message_speaks_of_anyway_is_left_out() -> None:
    news = Broadcasts(4.0, 6)
    news.put("a", "", b"1")
    news.put("b", "", b"2")
    assert news.take(100, 3, skip=["a"]) == [b"2"]
