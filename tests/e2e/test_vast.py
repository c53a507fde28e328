"""`pp-smoke-run --vastai` against the emulator, whose machines run the start script and the real node and worker.

The default model comes from a web server by range requests: the caller reads its header, each machine its own share.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.models import DEFAULT_MODEL, find_model, parse_model
from ppsmoke.request import open_model
from ppsmoke.roles import layer_ranges
from tests.changed_code import changed_code
from tests.e2e.kit import Box, Done, Program, stub_text, wait_until
from tests.models.kit import FileServer, Reply, Request, file_answer, file_server
from tests.vast.emulated import KEY, Emulated, emulated
from tests.vast.rented import SCALE, machines

HEADER_BYTES = 4 << 20
"""What a look at the default model's header takes."""
PATIENCE_S = 300.0
ASKED = ("--prompt", "Say hello", "--max-tokens", "8", "--context", "256", "--json")


class Served:
    """The model's file as a web server has it. `nbytes`: how much of it was sent."""

    def __init__(self, files: FileServer, path: Path) -> None:
        self.url = f"{files.url}/models/{path.name}"
        self.nbytes = 0
        self._answer = file_answer(path.read_bytes())
        files.answers[f"/models/{path.name}"] = self._counted

    def _counted(self, request: Request) -> Reply:
        reply = self._answer(request)
        self.nbytes += len(reply.body)
        return reply


def default_model() -> Path:
    path = find_model(parse_model(DEFAULT_MODEL))
    assert path is not None
    return path


@contextmanager
def served() -> Iterator[Served]:
    with file_server() as files:
        yield Served(files, default_model())


def share_bytes(stages: int) -> int:
    """Of the file, for all stages together."""
    model = open_model(DEFAULT_MODEL, default_model())
    ranges = layer_ranges(stages, model.num_layers)
    return sum(model.stage_memory(start, end, 256).file_bytes for start, end in ranges)


def rent(
    box: Box, folder: Path, *arguments: str, act: Callable[[Program], Done] | None = None, **how: Any
) -> tuple[Done, Emulated, list[str]]:
    """What the command said, and what the emulator's ledger shows alive afterwards."""

    async def scenario() -> tuple[Done, Emulated, list[str]]:
        async with emulated(scale=SCALE, nodes=nodes) as cloud:
            program = box.start(
                *(
                    "--vastai",
                    "--vast-url",
                    cloud.url,
                    "--time-scale",
                    str(SCALE),
                    "--silence-timeout",
                    "10",
                    *arguments,
                ),
                env={"VAST_API_KEY": KEY, "PP_SMOKE_CACHE": str(folder / "cache")},
                **how,
            )
            done = await asyncio.to_thread(act or (lambda program: program.end(PATIENCE_S)), program)
            return done, cloud, cloud.left()

    with machines(folder) as nodes:
        return asyncio.run(scenario())


@pytest.fixture(scope="module")
def seed_says(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, Any]]:
    """What the local run of the default model says."""

    @cache
    def run() -> dict[str, Any]:
        box = Box(tmp_path_factory.mktemp("seed"))
        done = box.run("--seed", "--num-stages", "2", "--model", DEFAULT_MODEL, *ASKED, deadline_s=PATIENCE_S)
        box.close()
        return done.expect(0).json

    return run


@pytest.mark.real_model
@pytest.mark.parametrize("stages", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_the_default_model_says_the_same_on_rented_machines(
    stages: int, box: Box, tmp_path: Path, seed_says: Callable[[], dict[str, Any]]
) -> None:
    with served() as file:
        done, _, left = rent(box, tmp_path, "--num-stages", str(stages), "--model", file.url, *ASKED)
        said = done.expect(0).json
        assert left == []
        assert file.nbytes <= share_bytes(stages) + (stages + 1) * (HEADER_BYTES + (1 << 20))
    assert (said["tokens"], said["text"]) == (seed_says()["tokens"], seed_says()["text"])
    assert [one["state"] for one in said["rental"]["instances"]] == ["gone"] * stages
    assert said["rental"]["spent_usd"] >= 0


def test_a_model_that_is_only_on_this_machine_is_read_from_it(box: Box, tmp_path: Path) -> None:
    own = write_tiny_gguf(tmp_path / "own model.gguf", blocks=6)
    asked = ("--model", str(own), "--num-stages", "2", *ASKED)
    done, _, left = rent(box, tmp_path, *asked)
    said = done.expect(0).json
    assert left == []
    assert said["tokens"] == box.run("--seed", *asked, deadline_s=PATIENCE_S).expect(0).json["tokens"]


@pytest.mark.slow
@pytest.mark.real_model
def test_new_code_finds_each_machines_share_on_its_disk(box: Box, tmp_path: Path) -> None:
    """And looks at the header alone, to see that the file is still the same one."""
    with served() as file:
        sent = []

        def redeploy(program: Program) -> Done:
            assert program.process.stdin is not None
            program.wait_line("^answer ")
            wait_until("it can be found", lambda: list((box.state / "pp-smoke-run" / "held").glob("*.held.json")))
            sent.append(file.nbytes)
            box.run("--redeploy", env=changed_code(tmp_path / "new")).expect(0)
            sent.append(file.nbytes)
            program.process.stdin.write(b"Say hello\n")
            program.process.stdin.close()
            return program.end(PATIENCE_S)

        asked = ("--num-stages", "2", "--prompt", "Say hello", "--max-tokens", "8", "--context", "256", "--hold")
        done, _, left = rent(box, tmp_path, "--model", file.url, *asked, act=redeploy, stdin=subprocess.PIPE)
    assert left == []
    first, second, _ = done.expect(0).text.split("\n")
    assert first == second != ""
    assert sent[1] - sent[0] <= 2 * HEADER_BYTES < sent[0] / 4


def test_an_interrupted_command_gives_its_machines_back(box: Box, tmp_path: Path) -> None:
    def interrupt(program: Program) -> Done:
        program.wait_line("stage 1: instance .* is running")
        program.signal(signal.SIGINT)
        return program.end(PATIENCE_S)

    model = "stub:layers=4,load_ms=3000"
    done, cloud, left = rent(box, tmp_path, "--num-stages", "2", "--model", model, act=interrupt)
    assert done.status == 130
    assert left == []
    assert len(cloud.service.account.rentals) == 2 + len(cloud.foreign)
    assert done.err.count("is verified as destroyed") == 2


@pytest.mark.slow
def test_a_command_that_was_stopped_goes_on_with_its_machines(box: Box, tmp_path: Path) -> None:
    """For longer than silence is borne, in mid text."""
    model, tokens = "stub:layers=4,step_ms=20", 60

    def stop_and_go_on(program: Program) -> Done:
        program.wait_output(PATIENCE_S)
        program.signal_group(signal.SIGTSTP)
        program.wait_line("stopped: the machines cost money all the same")
        wait_until("the stop", lambda: psutil.Process(program.process.pid).status() == psutil.STATUS_STOPPED)
        time.sleep(15)
        program.signal_group(signal.SIGCONT)
        return program.end(PATIENCE_S)

    asked = ("--num-stages", "2", "--model", model, "--max-tokens", str(tokens))
    as_a_job = {"start_new_session": False, "process_group": 0}
    done, _, left = rent(box, tmp_path, *asked, act=stop_and_go_on, **as_a_job)
    assert done.expect(0).text == stub_text("Say hello", tokens, model)
    assert left == []
