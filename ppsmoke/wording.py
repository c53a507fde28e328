"""What the tool says, as plain text: errors, tables, names. It needs no terminal and none of its libraries."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from ppsmoke.errors import PpError

_PLAIN_WORD = re.compile(r"[a-z]+('s)?[,:;]?")
_COMMANDS = frozenset({"pip", "apt", "chmod", "export"})


ERROR_PREFIX = "error: "


def describe_error(error: PpError) -> list[str]:
    """The lines an error prints: one sentence on what happened, with its code, one on what to do, its log lines."""
    where = f" (phase: {error.phase})" if error.phase and error.phase not in error.what else ""
    lines = [f"{ERROR_PREFIX}{sentence(error.what)}{where} [{error.code}]"]
    if error.remedy:
        lines.append(f"  fix: {sentence(error.remedy)}")
    if error.log_tail:
        lines.append(f"  {error.tail_title}{f' of stage {error.stage}' if error.stage is not None else ''}:")
        lines += [f"    | {line}" for line in error.log_tail]
    return lines


def without_stop(text: str) -> str:
    """What somebody else says, as a part of a sentence of ours, where a last full stop would stand in the middle."""
    return text.removesuffix(".") if not text.endswith("..") else text


def sentence(text: str) -> str:
    """As a line of its own: a plain word begins with a capital (a path, an address, a name or a command stays as it
    is), and the last full stop goes."""
    text = without_stop(text)
    first = text.split(" ", 1)[0]
    plain = first not in _COMMANDS and _PLAIN_WORD.fullmatch(first)
    return text[:1].upper() + text[1:] if plain else text


def wrap(text: str, width: int) -> str:
    """At the spaces, later lines set in; a path or an address stays in one piece, so that it can be copied."""
    return textwrap.fill(text, width, subsequent_indent="       ", break_long_words=False, break_on_hyphens=False)


def printable(text: str, instead: str = " ") -> str:
    """Without what would move a terminal's cursor, colour it or end the line."""
    return "".join(letter if letter.isprintable() else instead for letter in text)


def one_line(text: str, most: int) -> str:
    """What somebody else says, at most so many characters of it, without what a terminal would obey and without a last
    full stop."""
    line = without_stop(" ".join(printable(text).split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def counted(count: int, what: str) -> str:
    """'1 machine', '3 machines'"""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def member_name(stage: int | None) -> str:
    """'stage 2'; None stands for the orchestrator."""
    return "orchestrator" if stage is None else f"stage {stage}"


def columns(rows: Sequence[Sequence[str]], right: Callable[[int], bool] = lambda _column: False) -> list[str]:
    """Rows as aligned text, two spaces between columns; `right` tells which columns align right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(w) if right(i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def shown_model(model_id: str) -> str:
    """A model as it is shown: of a file its name alone, the directory being nobody else's business."""
    return Path(model_id).name if model_id.startswith("/") else model_id


def short_path(path: Path) -> str:
    """The path, with ~ for the home directory."""
    home = Path.home()
    inside = home != Path(home.root) and path.is_relative_to(home)
    return f"~/{path.relative_to(home)}" if inside else str(path)


def look_at_relay(urls: Sequence[str]) -> str:
    """What else may have been lost where a relay led to a stage."""
    return f"It was reached over a relay: see whether {' or '.join(urls)} still serves, or give another (--relay-url)."
