"""Python's UTF-8 mode, whatever the locale says: the text is UTF-8 bytes, and so are arguments, files and names."""

from __future__ import annotations

import os
import sys


def begin_in_utf8_mode() -> None:
    """Begin this program anew in that mode where neither it nor the locale is UTF-8; its children inherit it."""
    if sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8":
        return
    environment = {**os.environ, "PYTHONUTF8": "1"}
    environment.pop("PYTHONIOENCODING", None)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
