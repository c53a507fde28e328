"""What the terminal shows of errors and of other parts' warnings."""

from __future__ import annotations

import logging

import pytest

from ppsmoke.drawable import moves
from ppsmoke.errors import DeadlineExceeded
from ppsmoke.run_events import ErrorSeen, PhaseEntered, RunBegan
from ppsmoke.terminal import Terminal, TerminalLog


@pytest.mark.parametrize(("quiet", "debug"), [(False, False), (True, False), (False, True)])
def test_warnings_are_news_and_a_traceback_is_for_debug_alone(
    quiet: bool, debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.Logger("part")
    log.addHandler(TerminalLog(Terminal(quiet=quiet, debug=debug)))
    log.info("linked with stage 1")
    log.warning("another node is stage 1 now", extra={"expected": True})
    log.warning("refused a link from node 12ab34cd: %s", "the join token is wrong")
    try:
        raise ValueError("surprise")
    except ValueError:
        log.exception("a listener failed")
    said = capsys.readouterr().err
    assert "linked" not in said
    assert ("another node is stage 1 now" in said) is debug
    assert ("refused a link from node 12ab34cd: the join token is wrong" in said) is not quiet
    assert ("a listener failed" in said) is not quiet
    assert ("Traceback" in said) is debug


@pytest.mark.parametrize("debug", [False, True])
def test_what_connections_do_after_a_failure_does_not_stand_above_its_reason(
    debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(debug=debug)
    logs = [logging.Logger(name) for name in ("ppsmoke.transport.mesh", "ppsmoke.vast.lease")]
    for log in logs:
        log.addHandler(TerminalLog(terminal))
        log.warning("before")
    terminal.happened(ErrorSeen("stage_died", "stage 1's node was killed by SIGKILL", "", 1))
    for log in logs:
        log.warning("the link to stage 1 is given up")
    said = capsys.readouterr().err
    assert said.count("before") == 2
    assert said.count("given up") == (2 if debug else 1), "of the machines that are rented everything is told"


def test_debug_shows_where_an_error_was_raised_also_after_it_was_caught(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise DeadlineExceeded("it took too long")
    except DeadlineExceeded as caught:
        error = caught
    Terminal(debug=True).error(error)
    said = capsys.readouterr().err
    assert "error: It took too long" in said
    assert "test_terminal.py" in said
    Terminal().error(error)
    assert "test_terminal.py" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "drawn"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "tmux-256color", "NO_COLOR": "", "CI": ""}, True),
        ({"TERM": "xterm", "CI": "false"}, True),
        ({}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "CI": "true"}, False),
    ],
)
def test_it_draws_only_where_somebody_looks_at_a_terminal_that_can(environ: dict[str, str], drawn: bool) -> None:
    assert moves(environ) is drawn


@pytest.mark.parametrize("quiet", [True, False])
def test_a_run_shown_without_a_terminal_ends_without_a_word_of_its_own(
    quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(quiet=quiet)
    terminal.happened(RunBegan("0" * 32, "m", ((0, 1), (1, 2)), 1, 1, remote=False))
    terminal.happened(PhaseEntered("Joining", 30.0))
    terminal.waiting("waiting for the stages to join")
    terminal.line("news")
    terminal.finish()
    terminal.line("more")
    assert capsys.readouterr().err == ("" if quiet else "news\nmore\n")
