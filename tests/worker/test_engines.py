"""Which engine a worker takes, and what it says about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ppsmoke_worker.compiler import find_compiler
from ppsmoke_worker.engines import engine_options
from ppsmoke_worker.threads import Threads, choose_threads, usable_cores

from ppsmoke.errors import BadNodeEnvironment
from tests.worker.harness import PipedWorker


@pytest.mark.parametrize(
    ("options", "env", "engine", "reason"),
    [
        ((), {}, "kernels", "as asked for"),
        (("--threads", "3"), {}, "kernels", "3 threads, 3 in prefill"),
        (("--engine", "plain"), {}, "plain", "weights as f32"),
        ((), {"PP_WORKER_ENGINE": "plain"}, "plain", "as asked for"),
        (("--engine", "kernels"), {"PP_WORKER_ENGINE": "plain"}, "kernels", "as asked for"),
        (("--weights", "f16"), {}, "plain", "weights other than the file's were asked for; weights as f16"),
    ],
)
def test_the_ready_line_and_the_log_say_which_engine_it_is_and_why(
    options: tuple[str, ...], env: dict[str, str], engine: str, reason: str, tiny_model: Path
) -> None:
    arguments = ("--model", str(tiny_model), "--stage", "1", "--num-stages", "8", "--device", "CPU", *options)
    with PipedWorker(arguments, env) as worker:
        assert worker.ready()["engine"] == engine
        line = next(line for line in worker.log if line.startswith("engine "))
    assert line.startswith(f"engine {engine} on CPU: ")
    assert reason in line


def test_in_prefill_the_stages_share_the_cores() -> None:
    assert choose_threads(None, None, cores=2) == Threads(2, 2)
    assert choose_threads(None, 2, cores=2) == Threads(2, 1)
    assert choose_threads(None, 5, cores=2) == Threads(2, 1)
    assert choose_threads(None, 5, cores=64) == Threads(8, 12)
    assert choose_threads(3, 100) == Threads(3, 3)
    assert choose_threads(None, None).prefill == usable_cores() >= 1


def test_a_compiler_that_cannot_build_the_kernels_leaves_the_other_engine(tmp_path: Path, tiny_model: Path) -> None:
    real = find_compiler(os.environ, tmp_path).command
    wrapper = tmp_path / "cc"
    wrapper.write_text(
        "#!/bin/sh\n"
        'source=$(cat)\ncase "$source" in *pp_stage*) echo "error: too much for me" >&2; exit 1;; esac\n'
        f"""printf '%s\\n' "$source" | {" ".join(f"'{part}'" for part in real)} "$@"\n"""
    )
    wrapper.chmod(0o755)
    env = {"CC": str(wrapper), "PP_SMOKE_CACHE": str(tmp_path)}
    arguments = ("--model", str(tiny_model), "--stage", "1", "--num-stages", "8", "--device", "CPU")
    with PipedWorker(arguments, env) as worker:
        assert worker.ready()["engine"] == "plain"
        assert any("engine plain instead of kernels" in line and "too much for me" in line for line in worker.log)
    with PipedWorker((*arguments, "--engine", "kernels"), env) as worker:
        fields = worker.next().fields
    assert (fields["status"], fields["code"]) == ("fatal", "compiler_unavailable")


@pytest.mark.parametrize(
    "env",
    [{"PP_WORKER_ENGINE": "fast"}, {"PP_WORKER_WEIGHTS": "f8"}]
    + [{"PP_WORKER_THREADS": threads} for threads in ("0", "-1", "two", "9999")],
)
def test_a_wrong_choice_is_refused_by_name(env: dict[str, str]) -> None:
    with pytest.raises(BadNodeEnvironment, match=next(iter(env))):
        engine_options(env)


def test_a_wrong_number_of_threads_ends_the_worker_with_a_sentence(tiny_model: Path) -> None:
    with PipedWorker(("--model", str(tiny_model), "--stage", "1", "--num-stages", "8", "--threads", "0")) as worker:
        fields = worker.next().fields
    assert (fields["status"], fields["code"]) == ("fatal", "bad_node_environment")
