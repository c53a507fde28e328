"""The record of calls: from the first one on, in a file that is known only later."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ppsmoke.bundle.names import CALLS
from ppsmoke.redaction import Redactor
from ppsmoke.vast.call_log import CallLog

LOG = logging.getLogger("ppsmoke.vast")


def test_what_came_before_the_file_was_known_is_in_it_too_in_order(tmp_path: Path) -> None:
    with CallLog() as calls:
        LOG.debug("search answered %d", 200)
        calls.write_to(tmp_path, Redactor())
        logging.getLogger("ppsmoke.vast.exchange").debug("create answered 400")
    LOG.debug("after the run")
    lines = (tmp_path / CALLS).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["search answered 200", "create answered 400"]


def test_without_a_file_nothing_is_kept_and_nothing_fails() -> None:
    handlers, level = list(LOG.handlers), LOG.level
    with CallLog():
        LOG.debug("a call")
    assert (list(LOG.handlers), LOG.level) == (handlers, level)


def test_a_place_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with CallLog() as calls:
        LOG.debug("a call")
        calls.write_to(tmp_path / "absent", Redactor())
        LOG.debug("another")
    full = CallLog()
    with full:
        full.write_to(Path("/proc/self"), Redactor())
        LOG.debug("a third")
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_stays_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / CALLS).symlink_to("/dev/full")
    with CallLog() as calls:
        LOG.debug("a call")
        calls.write_to(tmp_path, Redactor())
        LOG.debug("another")
    assert capsys.readouterr().err == ""
