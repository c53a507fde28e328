"""What to send to a terminal so that text and lines of news stand above a block that is drawn again and again. Pure.

The cursor rests where the next letter of text goes, with the block on the lines below it. To draw, it is saved, goes
down, and is restored, all in one write. So nothing has to be known of what the terminal makes of its lines when its
size changes, or of what somebody types meanwhile: whatever is below the cursor is the block's and may be cleared. And
nothing has to be set right at the end, however the end comes: the cursor is never hidden, no mode is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import get_character_cell_size

_CLEAR_BELOW = "\x1b[J"
_CLEAR_RIGHT = "\x1b[K"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_DOWN = "\x1bD"  # keeps the column, and makes room at the foot of the screen
_TAB = 8
# A model may write any character; one that a terminal would obey is shown and not obeyed.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen:
    """Every method gives what is to be written, all at one time. `size` is given by who writes, before each call."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._line = ""  # the text's line that has not ended
        self._column = 0
        self._wrapped = False  # the last line was ended here, for want of room
        self._block: tuple[str, ...] = ()

    def resize(self, width: int, height: int) -> None:
        """The block is to be drawn again; who draws makes it fit."""
        self.width, self.height = width, height
        self._column = _column_after(0, self._line, width)

    def text(self, piece: str) -> str:
        """More of the text, which may end anywhere."""
        piece = piece.replace("\r\n", "\n")
        if self._wrapped and piece.startswith("\n"):
            piece = piece[1:]
        self._wrapped = False
        shown = unobeyed(piece).expandtabs(_TAB)
        _, newline, rest = shown.rpartition("\n")
        stays = not newline and self._column + _cells(rest) < self.width
        self._line = rest if newline else self._line + rest
        self._column = _column_after(0 if newline else self._column, rest, self.width)
        if stays:
            return shown  # the block is where it was
        if self._column >= self.width:
            # A terminal at the edge would forget, as soon as the cursor moves, that the next letter begins a line.
            shown += "\n"
            self._line, self._column, self._wrapped = "", 0, True
        return f"{_CLEAR_BELOW}{shown}{self._drawn()}"

    def line(self, rendered: str) -> str:
        """A line of news, or several: above the block, and never in the middle of the text's line."""
        return f"{self._fresh_line()}{rendered}\n{self._drawn()}"

    def block(self, lines: Sequence[str]) -> str:
        """Draw these lines below the cursor; each fits, with a cell to spare at the right."""
        self._block = tuple(lines[: max(0, self.height - 1)])
        return self._drawn() if self._block else _CLEAR_BELOW

    def clear(self) -> str:
        """Take the block away."""
        self._block = ()
        return _CLEAR_BELOW

    def typed(self) -> str:
        """Somebody ended a line at the keyboard: the cursor stands at the beginning of the next."""
        self._line, self._column, self._wrapped = "", 0, False
        return f"\r{_CLEAR_BELOW}{self._drawn()}"

    def end(self, lines: Sequence[str]) -> str:
        """Take the block away and leave `lines` for good, with the cursor on a line of its own."""
        had_text = self._column > 0
        self._block = ()
        space = "\n" if had_text and lines else ""
        return self._fresh_line() + space + "".join(f"{line}\n" for line in lines)

    def _fresh_line(self) -> str:
        start = f"{_CLEAR_BELOW}\n" if self._column else f"\r{_CLEAR_BELOW}"
        self._line, self._column, self._wrapped = "", 0, False
        return start

    def _drawn(self) -> str:
        if not self._block:
            return ""
        room = _DOWN * len(self._block) + f"\x1b[{len(self._block)}A"
        lines = "".join(f"\r\n{line}{_CLEAR_RIGHT}" for line in self._block)
        return f"{room}{_SAVE}{_CLEAR_RIGHT}{lines}{_CLEAR_BELOW}{_RESTORE}"


def unobeyed(text: str) -> str:
    """The text with letters in the place of what a terminal would take for orders, but for tabs and line ends."""
    return _OBEYED.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _cells(text: str) -> int:
    return sum(map(get_character_cell_size, text))


def _column_after(column: int, text: str, width: int) -> int:
    """Where the cursor is after `text`, which has no line's end; `width` when it is beyond the last cell."""
    for letter in text:
        cells = get_character_cell_size(letter)
        if column + cells > width:
            column = 0
        column += cells
    return column
