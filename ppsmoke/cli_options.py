"""The kinds of options that the command line is made of: each says its panel of the help, and what it refuses."""

from __future__ import annotations

from typing import Any

import typer


def option(*names: str, panel: str, text: str, **more: Any) -> Any:
    """An option with a value."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def flag(*names: str, panel: str, text: str) -> Any:
    """An option without one."""
    return option(*names, panel=panel, text=text, metavar="")


def number(*names: str, kind: type[int] | type[float], low: float, high: float, **more: Any) -> Any:
    """A number in [low, high]; the help shows its metavar alone, the error its bounds."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a {'whole number' if kind is int else 'number'}") from None
        if not low <= value <= high:
            shown = "d" if kind is int else "g"
            raise typer.BadParameter(
                f"{text} is out of range: give a number from {kind(low):{shown}} to {kind(high):{shown}}"
            )
        return value

    return option(*names, parser=parse, **more)
