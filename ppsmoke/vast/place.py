"""Where machines are rented, and how a command for the user says it. Pure."""

from __future__ import annotations

DEFAULT_URL = "https://console.vast.ai"


def teardown_words(url: str) -> str:
    """`pp-smoke-run --teardown`, as it must be given for what was rented at `url`."""
    return "pp-smoke-run --teardown" + ("" if url == DEFAULT_URL else f" --vast-url {url}")
