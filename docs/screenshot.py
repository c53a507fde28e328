"""`python -m docs.screenshot [FILE.svg]`: the picture of the display in the README, from a real run.

It runs pp-smoke-run at an emulated terminal, waits until it decodes and every stage has told its figures, and draws the
cells of that terminal as they are at that moment. Needs the `dev` extra.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

WIDTH, HEIGHT = 88, 26
DEADLINE_S = 120.0
COMMAND = ("--seed", "--num-stages", "5", "--max-tokens", "400", "--prompt", "Tell me a story")
_COLORS = {"default": None, "brown": "yellow"}


def main() -> int:
    """Exit status 1 when the run does not get so far."""
    parser = argparse.ArgumentParser(prog="python -m docs.screenshot", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).parent / "display.svg")
    file = parser.parse_args().file
    screen = pyte.Screen(WIDTH, HEIGHT)
    own, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    program = subprocess.Popen(
        [sys.executable, "-m", "ppsmoke.cli", *COMMAND],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**kept, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(end)
    try:
        found = _wait(screen, own)
        if found:
            file.write_text(picture(screen))
    finally:
        program.send_signal(signal.SIGINT)
        _drain(own)
        program.wait(30)
        os.close(own)
    print(file if found else "the run did not come to decode", file=sys.stderr)
    return 0 if found else 1


def picture(screen: pyte.Screen) -> str:
    """The SVG of a terminal's cells."""
    used = max(row for row, line in enumerate(screen.display) if line.strip()) + 1
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text("$ pp-smoke-run " + " ".join(f'"{word}"' if " " in word else word for word in COMMAND)))
    for row in range(used):
        console.print(_line(screen, row), no_wrap=True, overflow="crop")
    console.print()  # else the letters of the last line would be cut at their feet
    console.file.close()
    # Without the fonts that its style would fetch from elsewhere.
    return re.sub(r"\s*@font-face \{.*?\}", "", console.export_svg(title="pp-smoke-run"), flags=re.DOTALL)


def _line(screen: pyte.Screen, row: int) -> Text:
    cells = [screen.buffer[row][column] for column in range(WIDTH)]
    text = Text()
    for style, alike in groupby(cells, key=_style):
        text.append("".join(cell.data for cell in alike), style)
    text.rstrip()
    return text


def _style(cell: pyte.screens.Char) -> Style:
    return Style(color=_COLORS.get(cell.fg, cell.fg), bold=cell.bold, dim=cell.italics)  # slanted: see _wait


def _wait(screen: pyte.Screen, fd: int) -> bool:
    """Until the display shows a pace for every stage, in the middle of the text."""
    stream = pyte.ByteStream(screen)
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        if not select.select([fd], [], [], 1.0)[0]:
            continue
        try:
            # The emulated terminal knows no faint letters: they are kept as slanted ones, which nothing else here is.
            stream.feed(os.read(fd, 65536).replace(b"\x1b[2m", b"\x1b[3m"))
        except OSError:  # the run ended
            return False
        if sum(" a token" in line for line in screen.display) == 5:
            return True
    return False


def _drain(fd: int) -> None:
    try:
        while select.select([fd], [], [], 20.0)[0] and os.read(fd, 65536):
            pass
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main())
