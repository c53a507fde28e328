from __future__ import annotations

import io

import pytest

from ppsmoke.models import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with show_progress(out) as progress:
        for done in range(101):
            progress.update("fetching m", done * 1_000_000, 100_000_000)
        progress.update("unpacking m", 0, None)
        progress.note("a note")
    lines = out.getvalue().splitlines()
    assert lines[0] == "fetching m: 0 of 100 MB"
    assert lines[10] == "fetching m: 100 of 100 MB"
    assert lines[11:] == ["unpacking m: 0 B", "a note"]


def test_a_bar_on_a_terminal_that_shows_such(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    with show_progress(out) as progress:
        progress.update("fetching [m]", 0, 100_000_000)
        progress.update("fetching [m]", 50_000_000, 100_000_000)
        progress.note("waiting for [x]")
    assert "fetching [m]" in out.getvalue()
    assert "waiting for [x]" in out.getvalue()
    assert "50.0/100.0 MB" in out.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    plain = Terminal()
    with show_progress(plain) as progress:
        progress.update("fetching m", 0, 100_000_000)
    assert plain.getvalue() == "fetching m: 0 of 100 MB\n"


def test_a_stream_that_takes_no_more_does_not_end_the_fetch() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with show_progress(Gone()) as progress:
        progress.update("fetching m", 0, 100_000_000)
        progress.note("a note")
