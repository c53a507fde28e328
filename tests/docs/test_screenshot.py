"""The picture of a terminal: its letters and colours, and nothing that would have to be fetched."""

from __future__ import annotations

import html
import re

import pyte

from docs.error_table import README
from docs.screenshot import COMMAND, HEIGHT, WIDTH, picture


def test_a_picture_has_the_letters_of_the_screen_and_needs_nothing_else() -> None:
    screen = pyte.Screen(WIDTH, HEIGHT)
    pyte.Stream(screen).feed("run 1234\r\n\x1b[1mdecoding\x1b[0m  12 of 64 tokens\r\n0  0-5  \x1b[32mready\x1b[0m")
    svg = picture(screen)
    text = re.sub(r"<[^>]+>", "", svg).replace("&#160;", " ")
    for shown in ("run 1234", "decoding", "12 of 64 tokens", "ready"):
        assert shown in text
    assert "font-face" not in svg
    assert "url(http" not in svg


def test_the_picture_in_the_readme_shows_what_runs_say_today() -> None:
    text = html.unescape(re.sub(r"<[^>]+>", " ", (README.parent / "docs/display.svg").read_text())).replace("\xa0", " ")
    assert "$ pp-smoke-run " + " ".join(f'"{word}"' if " " in word else word for word in COMMAND) in text
    for shown in (
        r"run directory ~/\S+",
        r"stage 0  blocks 0-5  CPU  load \d",
        r"decoding +\d+ of 400 tokens",
        "→1 direct",
    ):
        assert re.search(shown, text), f"{shown}: run python -m docs.screenshot"
