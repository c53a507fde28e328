"""--redeploy: a held run's nodes get new code, in their own processes, and serve on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.changed_code import BROKEN, NEW_TOKEN, changed_code
from tests.e2e.kit import Box, Program, stub_text, wait_until
from tests.transport.relay import relay

MODEL = "stub:layers=6"
FIRST = "Say hello"


def held(box: Box, *arguments: str, model: str = MODEL) -> Program:
    run = box.start(
        *("--seed", "--model", model, "--hold", "--prompt", "Say hello", "--debug", "--max-tokens", "4", *arguments),
        stdin=subprocess.PIPE,
    )
    run.wait_line("^answer ")
    wait_until("the run can be found", lambda: list((box.state / "pp-smoke-run" / "held").glob("*.held.json")))
    return run


def say(run: Program, prompt: str) -> None:
    assert run.process.stdin is not None
    run.process.stdin.write(f"{prompt}\n".encode())
    run.process.stdin.flush()


def end(run: Program) -> str:
    assert run.process.stdin is not None
    run.process.stdin.close()
    return run.end().expect(0).text


def unpacked(box: Box) -> list[Path]:
    return [*(box.state / "pp-smoke-run").glob("runs/*/pp-smoke-code-*")]


def left(box: Box) -> list[Path]:
    return [*(box.state / "pp-smoke-run" / "held").iterdir(), *unpacked(box)]


def answers(run: Program) -> int:
    return sum(line.startswith("answer  ") for line in run.lines)


@pytest.mark.parametrize("stages", ["2", pytest.param("3", marks=pytest.mark.slow)])
def test_the_nodes_get_new_code_after_the_answer_under_way_and_serve_on(stages: str, box: Box, tmp_path: Path) -> None:
    slow = f"{MODEL},step_ms=50,at_stage=0"
    run = held(box, "-n", stages, "--max-tokens", "20", model=slow)
    nodes = [run.node(stage) for stage in range(int(stages))]
    say(run, "two")
    wait_until("the second answer began", lambda: bytes(run.out).partition(b"\n")[2])
    done = box.run("--redeploy", "--json", env=changed_code(tmp_path / "new")).expect(0)
    assert (done.json["exit_status"], done.json["error"]) == (0, None)
    assert f"code {done.json['sha256'][:8]}" in done.json["source"]
    say(run, "three")
    wait_until("the third answer", lambda: answers(run) == 3)
    # Once more: what is sent replaces what was sent before.
    box.run("--redeploy").expect(0)
    assert len(unpacked(box)) == 1
    say(run, "four")
    said = [stub_text(FIRST, 20, slow), stub_text("two", 20, slow), chr(NEW_TOKEN) * 20, stub_text("four", 20, slow)]
    assert end(run) == "".join(f"{answer}\n" for answer in said)
    pids = [int(line.rsplit(" ", 1)[1]) for line in run.lines if ", pid " in line]
    assert pids == nodes * 3, "each begins in the process that it replaces"
    assert left(box) == []


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("roles", "cannot use the new code: ppsmoke.node_cli --version ended with status 1: SyntaxError"),
        pytest.param("../ppsmoke_worker/server", "cannot use the new code: ppsmoke_worker", marks=pytest.mark.slow),
    ],
)
def test_code_that_cannot_even_be_loaded_is_refused_and_the_chain_goes_on(
    module: str, why: str, box: Box, tmp_path: Path
) -> None:
    run = held(box)
    new = changed_code(tmp_path / "new")
    # The command that sends it has loaded it before it broke.
    text = tmp_path / "new" / "ppsmoke" / f"{module}.py"
    breaks = f"import ppsmoke.cli, ppsmoke.redeploy_command\nopen({str(text)!r}, 'a').write({BROKEN!r})\n"
    program = (sys.executable, "-P", "-c", breaks + "ppsmoke.cli.main()")
    failed = box.run("--redeploy", program=program, env=new).failed(1, why)
    assert failed.out == b""
    said = failed.err.splitlines()
    assert said[-1] == "  fix: Mend it, and send it again"
    assert "the new code is refused, the chain goes on as it was" in said
    place = text.resolve().relative_to(tmp_path / "new")
    assert f"({place}, line " in " ".join(failed.err.split())
    say(run, "two")
    assert end(run) == f"{stub_text(FIRST, 4, MODEL)}\n{stub_text('two', 4, MODEL)}\n"
    assert any(line.startswith("the new code is refused, the chain goes on as it was") for line in run.lines)
    assert left(box) == []


def test_nodes_that_do_not_come_back_end_the_run_and_are_named(box: Box, tmp_path: Path) -> None:
    """Code that loads and cannot join."""
    broken = "\n\ndef parse_settings(environ):\n    raise BadNodeEnvironment('it gave up')\n"
    run = held(box)
    new = changed_code(tmp_path / "new", **{"stage/settings": broken})
    failed = box.run("--redeploy", env=new).failed(
        1, "stage", "'s node ended because its environment was wrong: It gave up"
    )
    assert "it gave up" in failed.err.lower()
    run.end().failed(1, "stage", "'s node ended because its environment was wrong: It gave up")
    assert left(box) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase", ["every stage has it", "Idle -> Redeploying", "Redeploying -> Planning", "WaitingReady"]
)
def test_ctrl_c_while_stages_restart_ends_both_and_leaves_nothing(phase: str, box: Box) -> None:
    run = held(box)
    asked = box.start("--redeploy")
    run.wait_line(phase if phase != "WaitingReady" else "Redeploying -> Planning")
    if phase == "WaitingReady":
        wait_until("the barrier", lambda: sum("-> WaitingReady" in line for line in run.lines) == 2)
    run.signal(signal.SIGINT)
    done = run.end()
    assert done.status in ((130, 0) if phase == "every stage has it" else (130,)), done.err
    failed = asked.end().expect(1)
    assert len(failed.errors) == 1, failed.err
    assert left(box) == []


@pytest.mark.slow
def test_a_stage_that_is_killed_while_it_restarts_is_named(box: Box) -> None:
    run = held(box)
    asked = box.start("--redeploy")
    run.wait_line("Redeploying -> Planning")
    run.strike(run.node(1))
    run.end().failed(1, "stage 1", "was killed by SIGKILL")
    asked.end().failed(1, "stage 1", "was killed by SIGKILL")
    assert left(box) == []


@pytest.mark.slow
def test_the_end_of_the_input_while_stages_restart_ends_the_hold_well(box: Box) -> None:
    run = held(box)
    asked = box.start("--redeploy")
    run.wait_line("Idle -> Redeploying")
    assert end(run) == f"{stub_text(FIRST, 4, MODEL)}\n"
    asked.end().expect(0)
    assert left(box) == []


@pytest.mark.slow
def test_nodes_that_are_met_over_a_relay_get_new_code_over_it(box: Box, tmp_path: Path) -> None:
    with relay("a-secret") as made:
        run = held(box, "-n", "3", "--relay-url", made.url, "--relay-token", "a-secret")
        box.run("--redeploy", env=changed_code(tmp_path / "new")).expect(0)
        say(run, "two")
        assert end(run) == f"{stub_text(FIRST, 4, MODEL)}\n{chr(NEW_TOKEN) * 4}\n"
    assert left(box) == []


@pytest.mark.slow
def test_what_cannot_be_sent_is_refused_by_the_command_itself(box: Box, tmp_path: Path) -> None:
    box.run("--redeploy").refused(2, "no run is held by this user on this machine")
    run = held(box)
    box.run("--redeploy", "--label", "pp-smoke-000000000000").refused(2, "no run pp-smoke-000000000000 is held")
    new = changed_code(tmp_path / "new", __init__='__version__ = "9.9"\n')
    box.run("--redeploy", env=new).refused(1, "the new code is version 9.9, and the held run is 0.1.0")
    assert len(left(box)) == 1
    run.signal(signal.SIGKILL)
    run.process.wait(10)
    box.wait_gone()
    box.run("--redeploy").refused(2, "no run is held by this user on this machine")
    assert left(box) == []
