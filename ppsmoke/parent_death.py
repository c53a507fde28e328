"""What becomes of a process when its parent dies, however it dies. Linux has it; elsewhere nothing is done."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def signalled_at_the_parents_death(number: signal.Signals) -> None:
    """From now on the kernel sends this process `number` when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
