"""What is said where nothing can be drawn: little, in time, and with times."""

from __future__ import annotations

from ppsmoke.display.plain import PlainLines
from ppsmoke.display.state import DisplayState, fold
from ppsmoke.run_events import RunEnded, StageDoing, StageState
from tests.display.runs import DECODING, LOCAL, PREPARING, RENTED, RENTING, told


def said(state: DisplayState, start: float, end: float, *, decoding: bool = True) -> list[str]:
    """Asked four times a second, while nothing happens."""
    lines = PlainLines(decoding=decoding)
    found = [lines.line(state, start + tick / 4) for tick in range(int((end - start) * 4))]
    return [line for line in found if line is not None]


def test_a_phase_that_is_short_is_not_worth_a_line() -> None:
    assert said(told(LOCAL, PREPARING), 3.0, 6.4) == []


def test_one_line_after_a_while_with_the_time_and_who_does_what() -> None:
    assert said(told(LOCAL, PREPARING), 3.0, 30.0) == [
        "6.5 s  preparing the stages: stage 0 fetching 12 of 345 MB; stage 1 loading 4 of 10 blocks; stage 2 ready"
    ]


def test_what_does_not_change_is_said_once_a_minute() -> None:
    assert len(said(told(LOCAL, PREPARING), 3.0, 130.0)) == 3


def test_progress_is_said_every_ten_seconds_at_most() -> None:
    state, lines, found = told(LOCAL, PREPARING), PlainLines(decoding=True), []
    for second in range(3, 63):
        state = fold(state, StageDoing(1, StageState.LOADING, "", second, 100, "blocks"), second)
        found.append(lines.line(state, second))
    assert [second for second, line in enumerate(found, 3) if line] == [7, 17, 27, 37, 47, 57]


def test_money_and_budget_are_part_of_the_line() -> None:
    assert said(told(RENTED, RENTING), 70.0, 71.0) == [
        "70 s  renting the machines: stage 0 pulling the image: layer 3 of 7; stages 1, 2 renting"
        "  (0.0123 USD so far, 240 s of the budget left)"
    ]


def test_the_text_is_not_interrupted_where_it_comes_out_at_the_same_place() -> None:
    state = told(LOCAL, DECODING)
    assert said(state, 20.0, 60.0, decoding=False) == []
    assert said(state, 20.0, 21.0) == ["20 s  decoding: 11 of 64 tokens, 10.0 tok/s"]


def test_nothing_is_said_after_the_end() -> None:
    assert said(fold(told(LOCAL, PREPARING), RunEnded(0), 9.0), 9.0, 200.0) == []
