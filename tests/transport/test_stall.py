"""When a path counts as dead, on numbers alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ppsmoke.transport.stall import LOOK_S, PathCounts, StallWatch

QUIET = (0, 0)


def looks(changes: Iterable[tuple[int, int]], *, round_trip_s: float = 0.0, path: str = "0") -> list[float | None]:
    """What the watch says at each look; a change is how many datagrams went out and came in since the look before."""
    watch, sent, received, said = StallWatch(), 10, 10, []
    for number, (out, back) in enumerate([(0, 0), *changes]):
        sent, received = sent + out, received + back
        said.append(watch.look(PathCounts(path, sent, received, round_trip_s), 100.0 + number * LOOK_S))
    return said[1:]


def first_stall(changes: Iterable[tuple[int, int]], round_trip_s: float = 0.0) -> float | None:
    """After how many seconds of `changes`."""
    said = looks(changes, round_trip_s=round_trip_s)
    found = next((number for number, silent_s in enumerate(said) if silent_s is not None), None)
    return None if found is None else (found + 1) * LOOK_S


def test_questions_that_nobody_answers_are_a_stall_after_a_second() -> None:
    """Repeated ever more rarely, as QUIC does."""
    repeats = [(1, 0) if look in (1, 2, 3, 5, 9, 17) else QUIET for look in range(30)]
    found = first_stall(repeats)
    assert found is not None
    assert 1.0 <= found <= 2.0


def test_on_a_long_way_eight_round_trips_are_waited_for() -> None:
    repeats = [(1, 0) if look in (1, 3, 8, 17) else QUIET for look in range(30)]
    found = first_stall(repeats, round_trip_s=0.4)
    assert found is not None
    assert 3.2 <= found <= 4.2


def test_a_stall_says_for_how_long_nothing_has_come() -> None:
    said = looks([(1, 1), *[(1, 0)] * 8])
    assert next(silent_s for silent_s in said if silent_s is not None) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "changes",
    [
        [QUIET] * 100,
        [(1, 1)] * 100,
        [(5, 0), (0, 5)] * 50,
        [(0, 3), (1, 0), *[QUIET] * 40] * 3,  # a mere acknowledgement, which nobody answers
        [(0, 1), (1, 0), QUIET, QUIET, (2, 0), (1, 1), *[QUIET] * 20] * 5,
        [QUIET, QUIET, (1, 0), *[QUIET] * 60],  # a probe for a greater datagram size is not repeated
        [(0, 7)] * 50,
    ],
)
def test_a_path_that_answers_or_is_not_asked_is_no_stall(changes: list[tuple[int, int]]) -> None:
    assert first_stall(changes) is None


def test_another_path_begins_anew() -> None:
    watch = StallWatch()
    for look in range(40):
        path = str(look // 3)
        assert watch.look(PathCounts(path, 10 + look, 10, 0.0), look * LOOK_S) is None
        assert watch.look(None, look * LOOK_S + 0.1) is None or look % 3


def test_a_process_that_was_stopped_blames_nobody() -> None:
    """What had been asked for before was perhaps answered, and nobody looked."""
    watch = StallWatch()
    now = 0.0
    for look in range(4):
        watch.look(PathCounts("0", 10 + look, 10, 0.0), now)
        now += LOOK_S
    now += 30.0
    assert watch.look(PathCounts("0", 15, 10, 0.0), now) is None
    assert watch.look(PathCounts("0", 15, 12, 0.0), now + LOOK_S) is None
