"""The page for a browser: in one piece, safe with whatever a run said, and drawn by a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppsmoke.report.analysis import analyse
from ppsmoke.report.html import html_page
from ppsmoke.report.source import read_story
from ppsmoke.run_events import ErrorSeen, MemberSeen
from tests.report.devtools import Browser, browser
from tests.report.recipe import Made, Recipe, begin, fail, make, prepare, serve

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> &lt; \u2028 end"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


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


def test_a_browser_draws_the_page(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page_of(make(Recipe(compute={2: 0.006})), tmp_path).as_uri())
    root = chromium.value("({...document.documentElement.dataset})")
    # Every stage's states, and as many of its steps as have a pixel of their own.
    assert int(root.pop("drawn")) > 60
    assert root == {"rendered": "1"}
    shown = chromium.value("document.querySelector('main').innerText")
    assert "Stage 2 computes 39 % of a token's time" in shown
    culprits = "[...document.querySelectorAll('tr.culprit')].map((row) => row.innerText)"
    assert [row.split("\t")[:2] for row in chromium.value(culprits)] == [["stage 2 computes", "39.5 %"]]
    buttons = chromium.value("[...document.querySelectorAll('button')].map((button) => button.textContent)")
    assert buttons == ["Whole run", "Start", "Prompt", "Tokens", "Two tokens", "Zoom in", "Zoom out"]
    assert chromium.problems == []


def test_a_browser_runs_nothing_that_a_run_said(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page_of(hostile(), tmp_path).as_uri())
    assert chromium.value("document.title") == "Run 01234567: smollm2:135m in 4 stages"
    assert chromium.value("document.documentElement.dataset.rendered") == "1"
    assert chromium.value("document.images.length") == 0
    cells = chromium.value("[...document.querySelectorAll('td.long')].map((cell) => cell.textContent)")
    assert any(cell.startswith("</script>") for cell in cells)
    assert chromium.problems == []


def test_the_timeline_is_moved_with_the_keyboard_and_the_mouse(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page_of(make(Recipe(compute={2: 0.006})), tmp_path).as_uri())
    chromium.size(1200, 900)
    chromium.value("canvas.focus()")
    whole = chromium.value("[view.begin, view.end]")
    chromium.press("+", "+")
    assert chromium.value("view.end - view.begin") == pytest.approx((whole[1] - whole[0]) / 4)
    before = chromium.value("view.begin")
    chromium.press("ArrowRight")
    assert chromium.value("view.begin") > before
    chromium.press("Home", "ArrowDown", "ArrowDown", ".", ".")
    assert chromium.value("status.textContent") == "stage 2: joining, 100 ms from 0.4000 s"
    left, top = chromium.value("(() => { const r = canvas.getBoundingClientRect(); return [r.x, r.y]; })()")
    # Over the compiling of stage 0, in the upper strip of its row.
    x, y = left + chromium.value("x(0.8)"), top + chromium.value("rowTop(1)") + 6
    chromium.mouse("mouseMoved", x, y)
    assert chromium.value("tip.hidden") is False
    assert chromium.value("tip.textContent") == "stage 0: compiling: a detail, 300 ms from 0.7000 s"
    chromium.value("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Two tokens').click()")
    assert chromium.value("view.end - view.begin") == pytest.approx(2 * 0.0152)
    begin = chromium.value("view.begin")
    chromium.mouse("mousePressed", x, y, button="left", clickCount=1)
    chromium.mouse("mouseMoved", x - 200, y, button="left")
    chromium.mouse("mouseReleased", x - 200, y, button="left", clickCount=1)
    assert chromium.value("view.begin") > begin
    assert chromium.problems == []


def test_the_page_follows_the_colours_and_the_width_that_are_wanted(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page_of(make(Recipe()), tmp_path).as_uri())
    pixel = "[...canvas.getContext('2d').getImageData(250, 12, 1, 1).data].join()"
    chromium.size(1200, 900)
    light = chromium.value(pixel)
    chromium.size(500, 900, dark=True)
    frame = f"new Promise((done) => requestAnimationFrame(() => done({pixel})))"
    assert any(chromium.value(frame) != light for _ in range(100))  # within so many frames
    assert chromium.value("document.documentElement.scrollWidth <= window.innerWidth")
