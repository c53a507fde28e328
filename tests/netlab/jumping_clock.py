"""`pp-gpu-node` whose wall clock jumps an hour when it gets SIGUSR1, and back when it gets SIGUSR2."""

from __future__ import annotations

import signal
import time

_JUMP_S = 3600.0
_real = time.time
_ahead_s = 0.0


def _time() -> float:
    return _real() + _ahead_s


def _jump(number: int, _: object) -> None:
    global _ahead_s
    _ahead_s += _JUMP_S if number == signal.SIGUSR1 else -_JUMP_S


if __name__ == "__main__":
    time.time = _time
    signal.signal(signal.SIGUSR1, _jump)
    signal.signal(signal.SIGUSR2, _jump)
    from ppsmoke.node_cli import main

    main()
