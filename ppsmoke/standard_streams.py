"""Standard streams that were closed before the program began."""

from __future__ import annotations

import os
import sys


def open_missing_streams() -> None:
    """What was closed from the start (`>&-`) leads nowhere, so that no file or socket of the run gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
