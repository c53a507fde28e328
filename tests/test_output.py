"""The sign of a prompt that is awaited, among news."""

from __future__ import annotations

from typing import Any, cast

from ppsmoke.output import RunOutput
from ppsmoke.terminal import Terminal


class Shown:
    """A terminal at which somebody sits, as what it shows."""

    text_display = None

    def __init__(self) -> None:
        self.text = ""

    def settle(self) -> None: ...

    def typed(self) -> None: ...

    def happened(self, *_: Any) -> None: ...

    def sign(self, text: str) -> bool:
        self.text += text
        return True

    def line(self, text: str) -> None:
        self.text += f"{text}\n"


def test_a_sign_that_news_hid_is_shown_again_while_its_prompt_is_awaited() -> None:
    shown = Shown()
    output = RunOutput(cast(Terminal, shown), stream=False)
    output.ask_again()
    assert shown.text == "", "nothing is awaited yet"
    output.ask("> ")
    output.ask_again()
    output.line("new code was sent")
    output.line("redeployed")
    output.ask_again()
    assert shown.text == "> \nnew code was sent\nredeployed\n> "
    output.heard()
    output.line("an answer is under way")
    output.ask_again()
    assert shown.text.endswith("an answer is under way\n")
