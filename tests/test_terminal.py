"""What the terminal shows of errors and of other parts' warnings."""

from __future__ import annotations

import logging

import pytest

from ppsmoke.errors import DeadlineExceeded
from ppsmoke.terminal import Terminal, TerminalLog


@pytest.mark.parametrize(("quiet", "debug"), [(False, False), (True, False), (False, True)])
def test_warnings_are_news_and_a_traceback_is_for_debug_alone(
    quiet: bool, debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.Logger("part")
    log.addHandler(TerminalLog(Terminal(quiet=quiet, debug=debug)))
    log.info("linked with stage 1")
    log.warning("refused a link from node 12ab34cd: %s", "the join token is wrong")
    try:
        raise ValueError("surprise")
    except ValueError:
        log.exception("a listener failed")
    said = capsys.readouterr().err
    assert "linked" not in said
    assert ("refused a link from node 12ab34cd: the join token is wrong" in said) is not quiet
    assert ("a listener failed" in said) is not quiet
    assert ("Traceback" in said) is debug


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
