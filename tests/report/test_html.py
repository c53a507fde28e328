"""The page for a browser: in one piece, safe with whatever a run said, and drawn by a real browser."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from ppsmoke.report.analysis import analyse
from ppsmoke.report.html import html_page
from ppsmoke.report.source import read_story
from ppsmoke.run_events import ErrorSeen, MemberSeen
from tests.report.browser import built_page
from tests.report.recipe import Made, Recipe, begin, fail, make, prepare, serve

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> &lt; \u2028 end"
)


def page_of(made: Made, directory: Path) -> Path:
    story = read_story(made.write(directory / "bundle"))
    file = directory / "out.html"
    file.write_text(html_page(story, analyse(story)), encoding="utf-8")
    return file


def hostile() -> Made:
    recipe = Recipe()
    made = begin(recipe)
    at = serve(recipe, made, prepare(recipe, made), until=(5, 1))
    made.logs[2] = f"{HOSTILE}\n"
    made.add(at + 1.0, MemberSeen(None, 2, "dead", 0, HOSTILE))
    fail(recipe, made, at + 1.0, ErrorSeen("worker_died", HOSTILE, HOSTILE, 2, HOSTILE))
    return made


def test_the_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    text = page_of(make(Recipe()), tmp_path).read_text()
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", text)
    assert "default-src 'none'" in text


def test_what_a_run_said_stays_data(tmp_path: Path) -> None:
    text = page_of(hostile(), tmp_path).read_text()
    assert text.count("</script>") == 2
    assert "<img" not in text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["members"][-1]["reason"] == HOSTILE


def test_a_browser_draws_the_page(tmp_path: Path) -> None:
    file = page_of(make(Recipe(compute={2: 0.006})), tmp_path)
    document, console = built_page(file, tmp_path / "profile", "--window-size=1200,900")
    assert console == []
    root = re.search(r"<html[^>]*>", document)
    assert root is not None
    assert 'data-rendered="1"' in root[0]
    assert "data-error" not in root[0]
    # Every stage's states, and as many of its steps as have a pixel of their own.
    drawn = re.search(r'data-drawn="(\d+)"', root[0])
    assert drawn is not None
    assert int(drawn[1]) > 60
    shown = html.unescape(re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL))
    assert "Stage 2 computes 39 % of a token's time" in shown
    assert re.search(r'<tr class="culprit"><td class="text">stage 2 computes</td><td>39\.5 %</td>', shown)
    for button in ("Whole run", "Start", "Prompt", "Tokens", "Two tokens", "Zoom in", "Zoom out"):
        assert f'<button type="button">{button}</button>' in shown


def test_a_browser_runs_nothing_that_a_run_said(tmp_path: Path) -> None:
    document, console = built_page(page_of(hostile(), tmp_path), tmp_path / "profile")
    assert console == []
    assert "<title>Run 01234567: smollm2:135m in 4 stages</title>" in document
    assert 'data-rendered="1"' in document
    assert re.search(r"<td class=\"text long\">&lt;/script&gt;&lt;script&gt;", document)
