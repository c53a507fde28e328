"""The CPU device opens with helper programs that an earlier start made, and works without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OPEN = """
import os, sys
from ppsmoke_worker.device import prepare_device
settings = prepare_device("CPU", os.environ)
if "--no-cache" in sys.argv:
    os.environ["CACHELEVEL"] = "0"
from ppsmoke_worker import helper_programs
from ppsmoke_worker.clang import use_compiler
made, make = [], helper_programs._MAKE
helper_programs._MAKE = lambda sink, renderer: made.append(sink) or make(sink, renderer)
use_compiler(settings.compiler, ())
from tinygrad import Tensor
assert (Tensor([1.0, 2.0]) + Tensor([3.0, 4.0])).tolist() == [4.0, 6.0]
print(len(made))
"""


def made(cache: Path, *arguments: str) -> int:
    """How many helper programs a start makes; the device then computes."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", OPEN, *arguments],
        env={**os.environ, "PP_SMOKE_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_helper_programs_are_made_once_for_a_cache(tmp_path: Path) -> None:
    first = made(tmp_path)
    assert first > 0
    assert made(tmp_path) == 0
    assert made(tmp_path, "--no-cache") == first
