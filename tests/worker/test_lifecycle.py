"""How a worker ends: by request, with its input, with its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppsmoke.stub_model import StubModel
from tests.worker.harness import DEADLINE_S, PipedWorker

FIRST = ("--stub", "--stage", "0", "--num-stages", "2", "--context", "64", "--model")
STEP = b'{"op": "embed_and_forward", "request_id": "r", "tokens": [1], "position": 0}\n'


def stub(**knobs: int) -> tuple[str, ...]:
    return (*FIRST, str(StubModel(**knobs)))


def test_end_of_input_while_idle_is_a_clean_exit() -> None:
    with PipedWorker(stub(), supervised=True) as worker:
        worker.ready()
        worker.close_stdin()
        assert worker.process.wait(DEADLINE_S) == 0


def test_by_hand_all_requests_before_the_end_of_input_are_answered() -> None:
    with PipedWorker(stub(load_ms=200, step_ms=50)) as worker:
        worker.send(STEP + b'{"op": "decode_step", "request_id": "r", "token": 2, "position": 1}\n')
        worker.close_stdin()
        worker.ready()
        assert [worker.next().fields["seq_len"] for _ in range(2)] == [1, 1]
        assert worker.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("ending", ["end of input", "shutdown"])
@pytest.mark.parametrize("moment", ["loading", "in a step"])
def test_under_a_node_the_end_takes_effect_in_the_middle_of_anything(moment: str, ending: str) -> None:
    knobs = stub(load_ms=600_000) if moment == "loading" else stub(hang_at=0)
    with PipedWorker(knobs, supervised=True) as worker:
        if moment == "in a step":
            worker.ready()
            worker.send(STEP)
        if ending == "shutdown":
            worker.send(b'{"op": "shutdown"}\n')
            while (said := worker.next().fields).get("status") == "progress":
                assert moment == "loading"
            assert said == {"status": "stopped"}
        else:
            worker.close_stdin()
        assert worker.process.wait(DEADLINE_S) == 0


def test_the_terminals_ctrl_c_is_not_the_workers_business() -> None:
    with PipedWorker(stub()) as worker:
        worker.ready()
        worker.process.send_signal(signal.SIGINT)
        assert worker.ask(op="reset") == {"status": "reset"}


PARENT = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-P", "-m", "ppsmoke_worker", *sys.argv[1:]], stdin=subprocess.PIPE,
    env={**os.environ, "PP_WORKER_PARENT": str(os.getpid())})
worker.stdin.write(b'{"op": "embed_and_forward", "request_id": "r", "tokens": [1], "position": 0}\\n')
worker.stdin.flush()
print(worker.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_in_a_step_does_not_outlive_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *stub(hang_at=0)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        lines = [parent.stdout.readline(), parent.stdout.readline()]
        pid = int(next(line for line in lines if line.strip().isdigit()))
        parent.kill()
        parent.wait(DEADLINE_S)
    wait_gone(pid)


END_WITH_A_CHILD = """
import subprocess
from ppsmoke_worker.channel import end_now
print(subprocess.Popen(["sh", "-c", "sleep 600 & wait"], stdout=subprocess.DEVNULL).pid, flush=True)
import time; time.sleep(0.3)
end_now(5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_in_flight_goes_with_the_worker() -> None:
    done = subprocess.run([sys.executable, "-c", END_WITH_A_CHILD], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    wait_gone(int(done.stdout))


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":  # dead; whoever adopted it has not looked yet
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("--model", "no-such-file.gguf", "--stage", "0", "--num-stages", "2"), "model_not_found", 3),
        (("--stub", "--model", "stub:", "--stage", "3", "--num-stages", "2"), "plan_invalid", 1),
        (("--stub", "--model", "stub:layers=2", "--stage", "0", "--num-stages", "3"), "plan_invalid", 1),
        (("--stub", "--model", "stub:"), "plan_invalid", 1),
        (("--stub", "--model", "m.gguf", "--stage", "0", "--num-stages", "2"), "usage", 2),
        (("--stub", "--stage", "0"), "bad_node_environment", 3),
        (("--stub", "--model", "stub:load_fail=1", "--stage", "0", "--num-stages", "2"), "worker_failed", 1),
    ],
)
def test_what_cannot_start_says_so_in_one_line(arguments: tuple[str, ...], code: str, status: int) -> None:
    with PipedWorker(arguments) as worker:
        fields = worker.next().fields
        assert (fields["status"], fields["code"]) == ("fatal", code)
        assert fields["message"]
        assert worker.process.wait(DEADLINE_S) == status


def test_without_a_model_configure_names_it_and_the_role() -> None:
    with PipedWorker(("--stub",)) as worker:
        assert worker.ready()["layers"] is None
        assert worker.error_code(STEP) == "wrong_role"
        reply = worker.ask(op="configure", model="stub:layers=4", layer_start=0, layer_end=2, context=16)
        assert (reply["role"], reply["layers"]) == ("First", [0, 2])
        assert json.loads(json.dumps(worker.ask(op="tokenize", text="a"))) == {"tokens": [97]}


def test_what_a_library_prints_goes_to_the_log() -> None:
    code = (
        "import os, sys; from ppsmoke_worker.channel import EventWriter; writer = EventWriter();"
        "print('noise', flush=True); os.write(1, b'more noise\\n'); writer.line({'a': 1})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == '{"a":1}\n'
    assert done.stderr.split() == ["noise", "more", "noise"]


def test_help_names_every_variable() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ppsmoke_worker", "--help"], capture_output=True, text=True, check=True, env=os.environ
    )
    for name in ("STAGE", "NUM_STAGES", "PP_MODEL", "PP_CONTEXT", "PP_DEVICE", "PP_WORKER_STUB", "PP_WORKER_WEIGHTS"):
        assert name in done.stdout
