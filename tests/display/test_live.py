"""The thread that draws: whatever becomes of the picture, the text comes out."""

from __future__ import annotations

import asyncio
import os

import pytest
from rich.console import Console

from ppsmoke.display import live
from ppsmoke.display.live import LiveDisplay
from ppsmoke.run_events import RunBegan

RUN = RunBegan("ab" * 16, "stub", ((0, 1), (1, 2)), 3, 8, remote=False)


def test_a_picture_that_cannot_be_drawn_does_not_hold_the_text_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(live, "frame", broken)
    monkeypatch.setattr(live, "_EVERY_S", 0.01)
    taken, given = os.pipe()
    display = LiveDisplay(RUN, Console(force_terminal=True), given)
    display.start()
    try:
        for piece in ("hello", " world"):
            asyncio.run(asyncio.wait_for(display.text(piece), 60))
    finally:
        display.finish()
        os.close(given)
    with os.fdopen(taken) as shown:
        assert "hello world" in shown.read()
    assert [record.getMessage() for record in caplog.records] == ["the run's picture cannot be drawn"]
