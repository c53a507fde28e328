"""The display as a user sees it: the real program at an emulated terminal, and at everything that is none."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import Box, stub_text, wait_until
from tests.e2e.pty_kit import Terminal, start, stopped

SLOW_LOAD = "stub:layers=12,load_ms=2500"
SLOW_STEP = "stub:layers=4,step_ms=40"
PROMPT = "Say hello"
PREPARING = re.compile("(joining|preparing the stages)  ")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def joined(rows: list[str], width: int, text: str) -> bool:
    """Whether `text` is on the screen, broken where the screen is full and nowhere else."""
    lines = [text[place : place + width].rstrip() for place in range(0, len(text), width)]
    return any(rows[place : place + len(lines)] == lines for place in range(len(rows)))


def test_loading_is_followed_and_the_last_frame_and_the_text_stay(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "-n", "3", "--model", SLOW_LOAD, "--max-tokens", "24")
    rows = terminal.wait_for(
        "a stage that loads",
        lambda rows: any("of 4 blocks" in row for row in rows) and any(map(PREPARING.match, rows)),
    )
    head = next(place for place, row in enumerate(rows) if PREPARING.match(row))
    assert [row.split()[0] for row in rows[head + 1 : head + 4]] == ["0", "1", "2"]
    assert any(re.match(r"\d  \d+-\d+ +pid \d+ +loading +[━─]{10} \d of 4 blocks +\d", row) for row in rows), rows
    assert program.end().status == 0
    rows = terminal.wait("done  24 tokens (max_tokens)")
    text = stub_text(PROMPT, 24, SLOW_LOAD)
    assert joined(rows, 80, text)
    assert [(row.split()[0], "stopped" in row) for row in rows[-4:-1]] == [("0", True), ("1", True), ("2", True)], rows
    assert not any("preparing" in row or "decoding" in row for row in rows)  # nothing is left of the earlier frames
    assert sum(row.startswith("stage ") for row in rows) == 3  # and no line of news is lost
    assert b"\x1b[?" not in terminal.bytes  # no mode was changed, so that even SIGKILL would leave none behind


def test_the_text_streams_above_the_block_and_stays_whole_through_other_sizes(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "-n", "2", "--model", SLOW_STEP, "--max-tokens", "110")
    rows = terminal.wait_for(
        "the block below the text",
        lambda rows: len(rows) > 3 and rows[-3].startswith("decoding  ") and rows[-1].startswith("1  2-3"),
    )
    news = [row for row in rows if row.startswith(("run ", "stage "))]
    # Not fewer rows: the emulated terminal would throw those at the top away.
    terminal.resize(40, 24)
    # A frame of the former width would take more than a row for each stage; and the text is to fill its row there.
    terminal.wait_for(
        "a frame of that width",
        lambda rows: (
            len(rows) > 3
            and re.match(r"decoding  (7\d|8\d|9\d|1\d\d) of 110 ", rows[-3])
            and rows[-1].startswith("1  2-3")
        ),
    )
    terminal.resize(100, 30)
    assert program.end().status == 0
    rows = terminal.wait("done  110 tokens")
    shown = "".join(rows)
    assert stub_text(PROMPT, 110, SLOW_STEP).replace(" ", "") in shown.replace(" ", "")
    for row in news:
        assert row[:39].rstrip() in shown, rows


def test_a_screen_of_a_few_rows_keeps_the_text(box: Box, terminal: Terminal) -> None:
    terminal.resize(40, 5)
    program = start(box, terminal, "--seed", "-n", "4", "--model", "stub:layers=8", "--max-tokens", "200")
    assert program.end().status == 0
    rows = terminal.wait("done")
    assert joined(rows, 40, stub_text(PROMPT, 200, "stub:layers=8"))


def test_text_in_a_file_is_byte_for_byte_while_the_display_is_on_the_terminal(
    box: Box, terminal: Terminal, tmp_path: Path
) -> None:
    with (tmp_path / "text").open("wb") as file:
        program = start(box, terminal, "--seed", "--model", SLOW_STEP, "--max-tokens", "40", stdout=file.fileno())
        terminal.wait("decoding", "of 40 tokens")
        assert program.end().status == 0
    assert (tmp_path / "text").read_text() == stub_text(PROMPT, 40, SLOW_STEP)


def test_news_in_a_file_has_no_control_characters_and_the_text_on_the_terminal_is_alone(
    box: Box, terminal: Terminal, tmp_path: Path
) -> None:
    with (tmp_path / "news").open("wb") as file:
        program = start(box, terminal, "--seed", "--model", SLOW_STEP, "--max-tokens", "20", stderr=file.fileno())
        assert program.end().status == 0
    assert terminal.wait_for("the text", bool) == [stub_text(PROMPT, 20, SLOW_STEP).rstrip()]
    said = (tmp_path / "news").read_text()
    assert "done  20 tokens" in said
    assert not CONTROL.search(said), said


def test_where_it_must_not_draw_there_are_only_lines(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "--model", "stub:layers=4", "--max-tokens", "12", env={"NO_COLOR": "1"})
    assert program.end().status == 0
    terminal.wait("done  12 tokens")
    assert not CONTROL.search(terminal.bytes.decode()), bytes(terminal.bytes)


def test_a_stage_that_fails_is_named_in_its_row_and_the_error_follows_the_last_frame(
    box: Box, terminal: Terminal
) -> None:
    model = "stub:layers=4,exit_at=5,at_stage=1"
    program = start(box, terminal, "--seed", "--model", model, "--max-tokens", "12")
    assert program.end().status == 1
    rows = terminal.wait("error: ")
    error = next(place for place, row in enumerate(rows) if row.startswith("error: "))
    assert "failed" in rows[error - 1]
    assert rows[error - 1].startswith("1  2-3")


def test_ctrl_c_stops_in_order_and_leaves_a_clean_screen(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "--model", SLOW_STEP, "--max-tokens", "2000")
    terminal.wait("decoding", "of 2000 tokens")
    terminal.type("\x03")
    assert program.end().status == 128 + signal.SIGINT
    rows = terminal.wait("error: Interrupted by SIGINT")
    assert any(row.startswith("SIGINT: stopping 2 stages") for row in rows)
    assert not any(row.startswith("decoding") for row in rows), rows
    error = next(place for place, row in enumerate(rows) if row.startswith("error: "))
    assert [row.split()[0] for row in rows[error - 2 : error]] == ["0", "1"]


def test_ctrl_z_leaves_the_terminal_to_the_shell_and_fg_brings_the_display_back(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "--model", SLOW_STEP, "--max-tokens", "60", job=True)
    terminal.wait("decoding", "of 60 tokens")
    program.signal(signal.SIGTSTP)
    wait_until("the stop", lambda: stopped(program.process.pid))
    rows = terminal.wait("stopped: the stages wait")
    assert not any(row.startswith(("decoding", "0  0-1")) for row in rows), rows
    terminal.show("[1]+  Stopped\r\n$ fg\r\n")
    program.signal(signal.SIGCONT)
    rows = terminal.wait("decoding", "of 60 tokens")
    assert program.end().status == 0
    rows = terminal.wait("done  60 tokens")
    assert {"[1]+  Stopped", "$ fg"} <= set(rows)
    shown = "".join(row for row in rows if not row.startswith(("stopped:", "[1]+", "$ fg", "going on")))
    assert stub_text(PROMPT, 60, SLOW_STEP).replace(" ", "") in shown.replace(" ", "")


def test_a_held_run_takes_what_is_typed_under_the_display(box: Box, terminal: Terminal) -> None:
    model = "stub:layers=4"
    program = start(box, terminal, "--seed", "--hold", "--prompt", "Say hello", "--model", model, "--max-tokens", "16")
    terminal.wait("waiting for a prompt")
    terminal.type("Say goodbye\n")
    terminal.wait_for("the second answer", lambda rows: stub_text("Say goodbye", 16, model).strip() in "\n".join(rows))
    terminal.wait_for("the second sign", lambda rows: sum(row.startswith(">") for row in rows) == 2)
    terminal.type("\x04")
    assert program.end().status == 0
    rows = terminal.wait("done  2 answers")
    assert "> Say goodbye" in rows
    for prompt in (PROMPT, "Say goodbye"):
        assert joined(rows, 80, stub_text(prompt, 16, model)), rows
    assert not any("waiting for a prompt" in row for row in rows)


def test_a_prompt_that_is_to_be_typed_is_asked_for(box: Box, terminal: Terminal) -> None:
    program = start(box, terminal, "--seed", "--prompt", "-", "--model", "stub:layers=4", "--max-tokens", "8")
    terminal.wait("the prompt is read from this terminal; Ctrl-D on a line of its own ends it")
    terminal.type("Say goodbye\n\x04")
    assert program.end().status == 0
    text = stub_text("Say goodbye", 8, "stub:layers=4")
    assert joined(terminal.wait("done  8 tokens"), 80, text)


@pytest.mark.slow
def test_a_terminal_that_takes_nothing_for_a_while_holds_the_text_up_and_nothing_else(
    box: Box, terminal: Terminal
) -> None:
    more = ("--silence-timeout", "2", "--token-timeout", "4")
    program = start(box, terminal, "--seed", "--model", SLOW_STEP, "--max-tokens", "60", *more)
    terminal.wait("decoding", "of 60 tokens")
    terminal.type("\x13")  # Ctrl-S
    time.sleep(6)
    terminal.type("\x11")  # Ctrl-Q
    assert program.end().status == 0
    rows = terminal.wait("done  60 tokens")
    assert joined(rows, 80, stub_text(PROMPT, 60, SLOW_STEP))


@pytest.mark.slow
def test_slow_plain_runs_say_now_and_then_what_they_wait_for(box: Box) -> None:
    done = box.run(
        "--seed", "--model", "stub:layers=4,load_ms=7000", "--max-tokens", "4", stderr=subprocess.PIPE
    ).expect(0)
    line = r"^\d+(\.\d)? s  preparing the stages: stages 0, 1 loading \d of 2 blocks$"
    assert re.search(line, done.err, re.MULTILINE), done.err
