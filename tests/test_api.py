"""`from ppsmoke import run_local`: what the command line does, as a function."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppsmoke import PpError, RunResult, api, run_local
from ppsmoke.errors import BadStageCount, UsageError, WorkerFailed
from ppsmoke.orchestrator.options import Deadlines
from ppsmoke.run_events import RunBegan, RunEvent, StageIsReady, TokenArrived
from tests.e2e.kit import stub_text

MODEL = "stub:layers=8"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    left = [child.cmdline() for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]
    assert not [command for command in left if "ppsmoke.node_cli" in command or "ppsmoke_worker" in command]


def test_it_gives_the_text_and_prints_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pieces: list[str] = []
    events: list[RunEvent] = []
    folder = tmp_path / "run"
    result = run_local(
        num_stages=3,
        model=MODEL,
        prompt="hallo",
        max_tokens=12,
        log_dir=folder,
        on_text=pieces.append,
        on_event=events.append,
    )
    assert isinstance(result, RunResult)
    assert result.text == "".join(pieces) == stub_text("hallo", 12, MODEL)
    assert (result.finish_reason, len(result.tokens), result.exit_status) == ("max_tokens", 12, 0)
    assert sum(isinstance(event, TokenArrived) for event in events) == 12
    assert sum(isinstance(event, StageIsReady) for event in events) == 3
    assert capfd.readouterr() == ("", "")
    assert json.loads((folder / "run.json").read_text())["text"] == result.text


RUNS = """
import gc, sys, time
from contextlib import suppress
from pathlib import Path
from ppsmoke import run_local

def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))

def raise_early(_event):
    raise LookupError

model = sys.argv[1]
run_local(model=model, max_tokens=2)  # what a process opens once
before = open_files()
run_local(model=model, max_tokens=2)
with suppress(LookupError):
    run_local(model=model, max_tokens=2, on_event=raise_early)
run_local(model=model, max_tokens=2)
ends = time.monotonic() + 20
while open_files() > before and time.monotonic() < ends:
    time.sleep(0.05)  # the network's sockets are closed by its own threads,
    gc.collect()  # and not while the last of them to end still has one in hand
sys.exit(open_files() > before)
"""


def test_runs_leave_no_file_open() -> None:
    """In a process of its own: what tests before have open, and when that is closed, is not the runs' doing."""
    done = subprocess.run([sys.executable, "-c", RUNS, MODEL], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_callers_handlers_of_signals_stay() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        own = {number: signal.getsignal(number) for number in numbers}
        run_local(model=MODEL, max_tokens=2)
        assert {number: signal.getsignal(number) for number in numbers} == own
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_it_works_in_a_thread_beside_an_event_loop() -> None:
    async def main() -> RunResult:
        threads: set[int] = set()
        made = await asyncio.to_thread(
            run_local, model=MODEL, max_tokens=4, on_text=lambda _: threads.add(threading.get_ident())
        )
        assert threads
        assert threading.get_ident() not in threads
        return made

    assert asyncio.run(main()).text == stub_text("Say hello", 4, MODEL)


def test_in_a_process_forked_from_one_that_used_it_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_processes", [os.getpid() + 1])
    with pytest.raises(UsageError, match="forked from one that had used it") as caught:
        run_local(model=MODEL)
    assert "spawn" in (caught.value.remedy or "")


def test_inside_an_event_loop_it_says_how_to_call_it() -> None:
    async def main() -> None:
        with pytest.raises(UsageError) as caught:
            run_local(model=MODEL)
        assert "asyncio.to_thread" in (caught.value.remedy or "")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"num_stages": 9}, BadStageCount, "8 blocks"),
        ({"max_tokens": 0}, UsageError, "max_tokens=0"),
        ({"max_tokens": "5"}, UsageError, "max_tokens='5' cannot be used"),
        ({"max_tokens": 5.0}, UsageError, "max_tokens=5.0 cannot be used"),
        ({"num_stages": "2"}, UsageError, "num_stages='2'"),
        ({"context": True}, UsageError, "context=True"),
        ({"temperature": "hot"}, UsageError, "temperature='hot'"),
        ({"top_p": float("nan")}, UsageError, "top_p=nan"),
        ({"sample_seed": None}, UsageError, "sample_seed=None"),
        ({"model": Path("model.gguf")}, UsageError, "model=PosixPath"),
        ({"prompt": b"hello"}, UsageError, "prompt=b'hello'"),
        ({"system": 5}, UsageError, "system=5"),
        ({"raw": "no"}, UsageError, "raw='no'"),
        ({"verify": None}, UsageError, "verify=None"),
        ({"device": None}, UsageError, "device=None"),
        ({"feedback": "straight"}, UsageError, "feedback='straight'"),
        ({"log_dir": 5}, UsageError, "log_dir=5"),
        ({"on_text": "print"}, UsageError, "on_text='print'"),
        ({"on_event": 5}, UsageError, "on_event=5"),
        ({"deadlines": 5}, UsageError, "deadlines=5"),
        ({"deadlines": Deadlines(join="5")}, UsageError, "deadlines.join='5'"),
        ({"temperature": -1.0}, UsageError, "temperature=-1.0"),
        ({"prompt": ""}, UsageError, "empty"),
    ],
)
def test_what_cannot_work_is_raised_before_anything_is_begun(
    arguments: dict[str, Any], kind: type[PpError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=says):
        run_local(**{"model": MODEL, **arguments})
    assert not (tmp_path / "state").exists()


def test_a_run_that_fails_raises_its_error() -> None:
    with pytest.raises(PpError) as caught:
        run_local(model=f"{MODEL},step_ms=60000", deadlines=Deadlines(response=1.0))
    assert caught.value.code == "deadline_exceeded"
    assert "1 s" in caught.value.what
    assert not isinstance(caught.value, WorkerFailed)


@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt])
def test_what_a_callback_raises_ends_the_run_in_order_and_comes_out(kind: type[BaseException]) -> None:
    def enough(_piece: str) -> None:
        raise kind("enough")

    with pytest.raises(kind, match="enough"):
        run_local(model=f"{MODEL},step_ms=50", max_tokens=500, on_text=enough)
    assert "membership" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("early", [RunBegan, StageIsReady])
def test_what_a_callback_for_events_raises_ends_the_run_before_its_first_text(
    early: type[RunEvent], tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def enough(event: RunEvent) -> None:
        if isinstance(event, early):
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        run_local(model=f"{MODEL},step_ms=50", max_tokens=500, log_dir=folder, on_event=enough)
    assert json.loads((folder / "run.json").read_text())["tokens"] == []


def test_ctrl_c_is_a_keyboard_interrupt() -> None:
    def interrupt(_piece: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # behind `&` it would be ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            run_local(model=f"{MODEL},step_ms=50", max_tokens=500, on_text=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_package_itself_stays_light() -> None:
    code = "import sys, ppsmoke; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(("iroh", "asyncio", "typer", "numpy"))
