"""Frames, letter by letter, at the widths that people have."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.display.frame import Paper, frame
from ppsmoke.display.state import DisplayState, begin, fold
from ppsmoke.figures import elapsed
from ppsmoke.run_events import EdgeMeasured, PhaseEntered, RunBegan, RunEnded, StageDoing, StagePlaced, StageState
from tests.display.runs import DECODING, LOCAL, PREPARING, RENTED, RENTING, told


def expected(name: str) -> str:
    return (Path(__file__).parent / "frames" / f"{name}.txt").read_text().rstrip("\n")


def drawn(state: DisplayState, now: float, width: int, height: int = 40, note: str = "") -> str:
    lines = frame(state, now, Paper(width, height), note)
    assert all(line.cell_len <= width for line in lines)
    assert len(lines) <= height
    return "\n".join(line.plain for line in lines)


def test_preparing_at_80() -> None:
    assert drawn(told(LOCAL, PREPARING), 4.5, 80) == expected("preparing_80")


def test_preparing_at_120() -> None:
    assert drawn(told(LOCAL, PREPARING), 4.5, 120) == expected("preparing_120")


def test_decoding_at_80() -> None:
    assert drawn(told(LOCAL, DECODING), 8.0, 80) == expected("decoding_80")


def test_decoding_at_120() -> None:
    assert drawn(told(LOCAL, DECODING), 8.0, 120) == expected("decoding_120")


def test_renting_at_80() -> None:
    assert drawn(told(RENTED, RENTING), 70.0, 80) == expected("renting_80")


def test_renting_at_120() -> None:
    assert drawn(told(RENTED, RENTING), 70.0, 120) == expected("renting_120")


def test_a_failure_is_said_in_the_row_of_its_stage_and_the_last_frame_leaves_the_rest_to_the_lines_after_it() -> None:
    state = told(LOCAL, DECODING)
    state = fold(state, StageDoing(1, StageState.FAILED, "stage 1's worker ended by SIGKILL in the middle of it"), 9.0)
    for stage in (0, 2):
        state = fold(state, StageDoing(stage, StageState.STOPPED), 9.1)
    assert drawn(fold(state, RunEnded(1), 9.2), 9.2, 80) == expected("failed_80")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_nothing_that_fits_is_followed_by_the_sign_of_a_cut(width: int) -> None:
    for length in range(10, width):
        what = "x" * length
        state = fold(told(LOCAL, DECODING), StageDoing(1, StageState.FAILED, what), 9.0)
        row = drawn(state, 9.1, width).splitlines()[2]
        assert row.endswith((f"  {what}", "x…"))


@pytest.mark.parametrize("width", range(10, 140))
def test_no_width_makes_a_line_wrap_or_hides_a_stage(width: int) -> None:
    for run, events in ((LOCAL, PREPARING), (LOCAL, DECODING), (RENTED, RENTING)):
        lines = drawn(told(run, events), 700.0, width).splitlines()
        assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]


def test_money_and_budget_stay_in_sight_where_it_is_narrow() -> None:
    head = drawn(told(RENTED, RENTING), 70.0, 60).splitlines()[0]
    assert head.endswith("0.0123 USD at 0.243/h  budget 240 s")
    assert "…" in head


def test_more_stages_than_lines_shows_those_that_are_behind() -> None:
    run = RunBegan("0" * 32, "m", tuple((index, index + 1) for index in range(20)), 1, 8, remote=False)
    state = told(run, [(1.0, PhaseEntered("WaitingReady", 600.0))])
    for stage in range(20):
        doing = StageState.LOADING if stage in (3, 17) else StageState.READY
        state = fold(state, StageDoing(stage, doing), 2.0)
    state = fold(state, StageDoing(9, StageState.FAILED, "it broke"), 2.0)
    lines = drawn(state, 3.0, 80, height=6).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["0", "3", "9", "17"]
    assert lines[5] == "and 16 more: 16 ready"


def test_what_is_waited_for_is_said_once_the_rows_no_longer_say_it() -> None:
    preparing, decoding = told(LOCAL, PREPARING), told(LOCAL, DECODING)
    assert "pp-entry" not in drawn(preparing, 4.0, 80, note="waiting for pp-entry")
    assert drawn(decoding, 8.0, 80, note="waiting for pp-entry").splitlines()[-1] == "waiting for pp-entry"


def test_a_path_that_is_known_early_takes_no_room_from_what_is_awaited() -> None:
    measured = [(3.5, EdgeMeasured(stage, (stage + 1) % 3, "direct", 0.0365)) for stage in range(3)]
    lines = drawn(told(LOCAL, [*PREPARING, *measured]), 4.5, 80).splitlines()
    assert "12 of 345 MB" in lines[1]
    assert lines[1].endswith("2.5 s")
    assert "4 of 10 blocks" in lines[2]


def test_names_with_letters_of_two_cells_or_with_control_characters_keep_the_columns() -> None:
    state = told(
        RENTED, [*RENTING, (15.0, StageDoing(0, StageState.STARTING, "拉取镜像\x1b[31m\n\tred 拉取镜像拉取镜像"))]
    )
    lines = drawn(state, 20.0, 80).splitlines()
    assert len(lines) == 4
    assert "拉取镜像" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_a_terminal_of_old_letters_gets_no_others() -> None:
    for line in frame(told(LOCAL, PREPARING), 4.5, Paper(60, 10, ascii_only=True)):
        assert line.plain.isascii()
    assert "====------" in frame(told(LOCAL, PREPARING), 4.5, Paper(80, 10, ascii_only=True))[2].plain


@pytest.mark.parametrize(
    ("value", "text"), [(-1.0, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (200, "200 s")]
)
def test_times_in_words(value: float, text: str) -> None:
    assert elapsed(value) == text


def test_no_cell_is_cut_beside_empty_ones() -> None:
    host = "instance 31415926, RTX 6000Ada, Rheinland-Pfalz, Germany"
    state = fold(begin(RENTED, 0.0), StagePlaced(0, host), 1.0)
    (row,) = [line.plain for line in frame(state, 2.0, Paper(120)) if line.plain.lstrip().startswith("0 ")]
    assert host in row
    assert len(row) <= 120
