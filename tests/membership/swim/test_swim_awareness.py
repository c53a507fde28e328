from __future__ import annotations

import pytest

from ppsmoke.membership.swim.awareness import Awareness, probe_failed_delta


def test_a_healthy_member_waits_as_long_as_asked() -> None:
    assert Awareness(8).scale(0.5) == 0.5


def test_each_point_adds_the_wait_once_more() -> None:
    awareness = Awareness(8)
    awareness.change(3)
    assert awareness.scale(0.5) == 2.0


@pytest.mark.parametrize(("delta", "score"), [(-5, 0), (100, 8)])
def test_the_score_stays_between_healthy_and_the_limit(delta: int, score: int) -> None:
    awareness = Awareness(8)
    awareness.change(delta)
    assert awareness.score == score


@pytest.mark.parametrize(
    ("asked", "refused", "delta"),
    [
        (0, 0, 1),
        (3, 3, 0),
        (3, 1, 2),
        (3, 0, 3),
        (1, 1, 0),
    ],
)
def test_helpers_that_had_no_answer_either_clear_us(asked: int, refused: int, delta: int) -> None:
    assert probe_failed_delta(asked, refused) == delta
