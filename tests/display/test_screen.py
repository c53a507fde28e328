"""What a terminal shows after all that was written to it: an emulated one reads the very bytes."""

from __future__ import annotations

import random

import pyte
import pytest

from ppsmoke.display.screen import Screen

BLOCK = ["preparing", "0 loading", "1 ready"]


class Tube:
    """A terminal as the kernel feeds it: a line's end also returns. `rows` has what scrolled away, too."""

    def __init__(self, width: int, height: int) -> None:
        self.terminal = pyte.HistoryScreen(width, height, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self.terminal)

    def feed(self, data: str) -> None:
        self._stream.feed(data.replace("\n", "\r\n"))

    def rows(self) -> list[str]:
        gone = [
            "".join(row[column].data for column in range(self.terminal.columns)).rstrip()
            for row in self.terminal.history.top
        ]
        rows = gone + [row.rstrip() for row in self.terminal.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows


def both(width: int = 40, height: int = 12) -> tuple[Screen, Tube]:
    return Screen(width, height), Tube(width, height)


def test_news_stands_above_the_block_and_text_in_the_line_between() -> None:
    screen, tube = both()
    tube.feed(screen.line("run 1234"))
    tube.feed(screen.block(BLOCK))
    assert tube.rows() == ["run 1234", "", *BLOCK]
    tube.feed(screen.line("stage 1 is ready"))
    tube.feed(screen.text("Once upon"))
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text(" a time"))
    assert tube.rows() == ["run 1234", "stage 1 is ready", "Once upon a time", *BLOCK]
    assert (tube.terminal.cursor.x, tube.terminal.cursor.y) == (16, 2)


def test_news_in_the_middle_of_the_text_ends_its_line_and_the_text_goes_on_below() -> None:
    screen, tube = both()
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text("Once upon"))
    tube.feed(screen.line("member 2 is suspect"))
    tube.feed(screen.text(" a time"))
    assert tube.rows() == ["Once upon", "member 2 is suspect", " a time", *BLOCK]


def test_a_block_that_changes_its_height_leaves_nothing_of_the_old_one() -> None:
    screen, tube = both()
    tube.feed(screen.text("text"))
    for lines in (BLOCK, [*BLOCK, "2 ready", "a note"], ["x"], BLOCK, []):
        tube.feed(screen.block(lines))
        assert tube.rows() == ["text", *lines]
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.clear())
    assert tube.rows() == ["text"]


def test_the_end_leaves_the_last_frame_below_the_text_and_the_cursor_on_a_line_of_its_own() -> None:
    screen, tube = both()
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text("the end."))
    tube.feed(screen.end(["0 stopped", "1 stopped"]))
    tube.feed("$ ")
    assert tube.rows() == ["the end.", "", "0 stopped", "1 stopped", "$"]


def test_at_the_foot_of_the_screen_what_was_said_scrolls_away_and_is_not_lost() -> None:
    screen, tube = both(height=8)
    lines = [f"line {number}" for number in range(40)]
    for number, line in enumerate(lines):
        tube.feed(screen.line(line))
        if number % 3 == 0:
            tube.feed(screen.block(BLOCK))
    assert tube.rows() == [*lines, "", *BLOCK]


@pytest.mark.parametrize("width", [1, 7, 40])
@pytest.mark.parametrize("seed", range(6))
def test_text_in_any_pieces_is_shown_whole_whatever_comes_between(seed: int, width: int) -> None:
    """Letter by letter as if it had been alone. (The emulated terminal knows no wide letter at the edge.)"""
    chance = random.Random(seed)
    text = "".join(chance.choice("abc def\n.. é") for _ in range(400))
    screen, tube = both(width, 9)
    place = 0
    while place < len(text):
        piece = text[place : (place := place + chance.randint(1, 9))]
        tube.feed(screen.text(piece))
        if chance.random() < 0.3:
            tube.feed(screen.block(BLOCK[: chance.randint(0, 3)] if width > 12 else ["#"]))
    tube.feed(screen.clear())
    alone = Tube(width, 9)
    alone.feed(text)
    assert tube.rows() == alone.rows()


def test_wide_letters_take_two_cells_each() -> None:
    screen, tube = both(11, 12)
    tube.feed(screen.block(BLOCK))
    for letter in "你好你好a你好":
        tube.feed(screen.text(letter))
    rows = [row.replace(" ", "") for row in tube.rows()]
    assert rows == ["你好你好a你", "好", "preparing", "0loading", "1ready"]


@pytest.mark.parametrize("width", [20, 60])
def test_after_another_size_the_text_goes_on_where_it_was_and_no_news_is_lost(width: int) -> None:
    screen, tube = both(40, 12)
    for number in range(5):
        tube.feed(screen.line(f"news {number}"))
    tube.feed(screen.text("Once upon"))
    tube.feed(screen.block(BLOCK))
    tube.terminal.resize(12, width)
    screen.resize(width, 12)
    tube.feed(screen.clear() + screen.block(BLOCK))
    tube.feed(screen.text(" a time"))
    assert tube.rows() == [*(f"news {number}" for number in range(5)), "Once upon a time", *BLOCK]


def test_what_somebody_types_stands_in_the_text_and_the_block_below_it() -> None:
    screen, tube = both()
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text("> "))
    tube.feed("my promt")  # the terminal's own echo
    tube.feed(screen.block(BLOCK))
    tube.feed("\b \b\bpt")
    tube.feed("\n")
    tube.feed(screen.typed())
    tube.feed(screen.text("Answer"))
    assert tube.rows() == ["> my propt", "Answer", *BLOCK]


def test_a_model_that_writes_orders_to_the_terminal_is_not_obeyed() -> None:
    screen, tube = both()
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text("a\x1b[2Jb\x1b]0;title\x07c\rd\x9b1mé\tf\r\ng"))
    assert tube.rows() == ["a␛[2Jb␛]0;title␇c␍d\ufffd1mé f", "g", *BLOCK]


def test_no_mode_of_the_terminal_is_changed_so_that_any_end_leaves_it_as_it_was() -> None:
    screen, _ = both()
    written = screen.block(BLOCK) + screen.text("text\n") + screen.line("news") + screen.end(BLOCK)
    assert "\x1b[?" not in written
    assert "\x1bc" not in written


def test_a_screen_with_hardly_a_line_keeps_the_text() -> None:
    screen, tube = both(40, 2)
    tube.feed(screen.block(BLOCK))
    tube.feed(screen.text("one\ntwo\nthree"))
    assert tube.rows()[-2:] == ["three", "preparing"]


def test_where_a_narrower_screen_breaks_the_text_anew_its_edge_is_known() -> None:
    screen = Screen(40, 12)
    screen.text("a" * 30)
    screen.resize(20, 12)  # ten letters are on its second row
    assert not screen.text("b" * 9).endswith("\n")
    assert screen.text("c").endswith("\n")
