"""Workers that need the same thing at once make it once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

MAKE = """
import os, sys, time
os.environ["CACHEDB"], made = sys.argv[1:3]
from ppsmoke_worker import making
from ppsmoke_worker.making import kept_or_made
making._PATIENCE_S = 0.5 if "--impatient" in sys.argv else 60

def make():
    with open(made, "ab") as log:
        log.write(b"made ")
    if "--die" in sys.argv:
        os._exit(9)
    if "--stop" in sys.argv:
        print("making", flush=True)
        time.sleep(600)
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


def test_a_maker_that_was_stopped_is_not_waited_for_without_end(tmp_path: Path) -> None:
    stopped = start(tmp_path, "--stop")
    assert stopped.stdin is not None
    assert stopped.stdout is not None
    try:
        stopped.stdin.close()
        assert stopped.stdout.readline() == "making\n"
        stopped.send_signal(signal.SIGSTOP)
        assert let_go(start(tmp_path, "--impatient")) == [0]
    finally:
        stopped.kill()
        stopped.wait(60)
        stopped.stdout.close()


TINYGRAD = """
import os, sys
os.environ.update(CACHEDB=sys.argv[1], PARALLEL="0", DEV="PYTHON")
from ppsmoke_worker.making import kept_or_made, outlive_cache
from tinygrad.device import Compiler

class Upper(Compiler):
    def compile(self, source):
        return source.upper().encode()

outlive_cache()
size = os.path.getsize(sys.argv[1])
if "--full" in sys.argv:  # no file of this process can grow any more, as on a full disk
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
assert Upper("upper").compile_cached("a kernel" * 9999) == b"A KERNEL" * 9999
assert kept_or_made("things", "one", lambda: b"the thing") == b"the thing"
"""


def compile_with(database: Path, *more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", TINYGRAD, str(database), *more], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def new_database(folder: Path) -> Path:
    database = folder / "kernels.db"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE pp_smoke_run (opened INTEGER)")
    connection.close()
    return database


def test_a_cache_that_cannot_grow_costs_a_message_and_nothing_else(tmp_path: Path) -> None:
    said = compile_with(new_database(tmp_path), "--full")
    assert said.count("kernels are no longer cached") == 1
    assert "Traceback" not in said


def test_a_cache_that_is_damaged_costs_a_message_and_the_next_worker_begins_anew(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    assert compile_with(database) == ""
    whole = bytearray(database.read_bytes())
    whole[100:] = b"\x5a" * (len(whole) - 100)
    database.write_bytes(whole)
    said = compile_with(database)
    assert said.count("kernels are no longer cached") == 1
    assert "damaged, removed" in said
    assert "Traceback" not in said
    assert not database.exists()
    assert compile_with(new_database(tmp_path)) == ""
