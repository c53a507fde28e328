"""Workers that need the same thing at once make it once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MAKE = """
import os, sys, time
os.environ["CACHEDB"], made = sys.argv[1:3]
from ppsmoke_worker.making import kept_or_made

def make():
    with open(made, "ab") as log:
        log.write(b"made ")
    if "--die" in sys.argv:
        os._exit(9)
    time.sleep(0.3)  # making takes a while, and the others come meanwhile
    return b"the thing"

print("here", flush=True)
sys.stdin.read()  # until all are here
assert kept_or_made("things", "one", make) == b"the thing"
"""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [str(folder / "kernels.db"), str(folder / "made"), *more]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", MAKE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


def let_go(*processes: subprocess.Popen[str]) -> list[int]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    statuses = [process.wait(60) for process in processes]
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    return statuses


def test_what_all_need_one_makes(tmp_path: Path) -> None:
    assert let_go(*(start(tmp_path) for _ in range(4))) == [0, 0, 0, 0]
    assert (tmp_path / "made").read_bytes() == b"made "


def test_a_maker_that_dies_leaves_the_work_to_the_next(tmp_path: Path) -> None:
    assert let_go(start(tmp_path, "--die")) == [9]
    assert let_go(start(tmp_path), start(tmp_path)) == [0, 0]
    assert (tmp_path / "made").read_bytes() == b"made made "


def test_without_a_place_for_the_lock_everything_is_made(tmp_path: Path) -> None:
    (tmp_path / "kernels.db.lock").mkdir()
    assert let_go(start(tmp_path)) == [0]
    assert (tmp_path / "made").read_bytes() == b"made "
