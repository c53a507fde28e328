"""What comes out where: text on stdout as it comes, news on stderr, one object with --json; readers of all kinds."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.e2e.kit import CLI, Box, stub_ids, stub_text, wait_until

MODEL = "stub:layers=4"
SLOW = "stub:layers=4,step_ms=20"
DEFAULT_PROMPT = "Say hello"
PIPE_BYTES = 65536


def shell(box: Box, command: str, **how: object) -> tuple[int, bytes, str]:
    """A shell command in which `pp` is the program; (its status, stdout, stderr)."""
    words = " ".join(f"'{word}'" for word in CLI)
    # bash -o pipefail: the program's own status counts, not that of the last in the pipe.
    done = box.start(program=("bash", "-o", "pipefail", "-c", f'pp() {{ {words} "$@"; }}\n{command}'), **how).end()
    return done.status, done.out, done.err


def test_stdout_has_the_text_and_nothing_else(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "--max-tokens", "16").expect(0)
    assert done.text == stub_text(DEFAULT_PROMPT, 16, MODEL)
    assert "16 tokens (max_tokens)" in done.err
    assert "run directory" in done.err


def test_quiet_says_only_the_text(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "--quiet", "--max-tokens", "16").expect(0)
    assert done.text == stub_text(DEFAULT_PROMPT, 16, MODEL)
    assert done.err == ""


def test_quiet_still_says_what_went_wrong(box: Box) -> None:
    box.run("--seed", "--model", "stub:layers=4,fail_at=2,at_stage=1", "--quiet").failed(1, "stage 1")


def test_text_arrives_while_the_run_still_decodes(box: Box) -> None:
    run = box.start("--seed", "--model", SLOW, "--max-tokens", "50", "--debug")
    assert len(run.wait_output()) < 50
    assert not any("TearingDown" in line for line in run.lines)
    assert run.end().expect(0).text == stub_text(DEFAULT_PROMPT, 50, SLOW)


@pytest.mark.parametrize("blocking", [True, False], ids=["a usual pipe", "one that somebody made non-blocking"])
def test_a_slow_reader_loses_nothing(box: Box, blocking: bool) -> None:
    """Nobody reads for longer than the deadline between two tokens: backpressure is not silence."""
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    filled = os.write(writing, b"." * (PIPE_BYTES - 8))
    with open(writing, "wb") as stdout:
        run = box.start("--seed", "--model", MODEL, "--max-tokens", "300", "--token-timeout", "1", stdout=stdout)
    wait_until("a full pipe", lambda: _waiting(reading) == PIPE_BYTES)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(2)
    received = bytearray()
    while data := os.read(reading, 4096):
        received += data
    os.close(reading)
    assert received[filled:].decode() == stub_text(DEFAULT_PROMPT, 300, MODEL)
    run.end().expect(0)


def _waiting(pipe: int) -> int:
    """Bytes in the pipe."""
    answer = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, answer)
    return int.from_bytes(answer, sys.byteorder)


def test_head_ends_the_run_cleanly(box: Box) -> None:
    """Long before the 2000 tokens are over."""
    status, out, err = shell(
        box, f"pp --seed --model {SLOW} --max-tokens 2000 --context 4096 --prompt '{DEFAULT_PROMPT}' | head -c 1"
    )
    assert status == 0, err
    assert out.decode() == stub_text(DEFAULT_PROMPT, 1, SLOW)
    assert "error" not in err
    assert "Traceback" not in err
    assert "output closed" in err


def test_a_reader_that_leaves_before_the_first_token(box: Box) -> None:
    status, _, err = shell(box, f"pp --seed --model {SLOW} --max-tokens 2000 --context 4096 | true")
    assert status == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--plan", "--json", "--help", "--version"])
def test_nobody_reads_what_comes_at_the_end(box: Box, option: str) -> None:
    status, _, err = shell(box, f"pp --seed --model {MODEL} --max-tokens 4 {option} | true")
    assert status == 0, err
    assert "Traceback" not in err
    assert "error" not in err


def test_stderr_whose_reader_went_away_does_not_harm_the_text(box: Box) -> None:
    status, out, _ = shell(box, f"pp --seed --model {SLOW} --max-tokens 60 --debug 2> >(head -n 1 >/dev/null)")
    assert status == 0
    assert out.decode() == stub_text(DEFAULT_PROMPT, 60, SLOW)


@pytest.mark.parametrize(
    "closed",
    [
        ">&-",
        ">&- 2>&- <&-",
        pytest.param("2>&-", marks=pytest.mark.slow),
        pytest.param("<&-", marks=pytest.mark.slow),
    ],
)
def test_streams_closed_from_the_start(box: Box, closed: str) -> None:
    status, out, err = shell(box, f"pp --seed --model {MODEL} --max-tokens 16 {closed}")
    assert status == 0, err
    assert out.decode() == ("" if ">&-" in closed.split() else stub_text(DEFAULT_PROMPT, 16, MODEL))
    assert "Traceback" not in err


def test_a_full_disk_is_not_a_reader_who_had_enough(box: Box) -> None:
    with open("/dev/full", "wb") as full:
        run = box.start("--seed", "--model", MODEL, "--max-tokens", "16", stdout=full)
    run.end().failed(3, "standard output cannot be written", "No space left")


def test_json_on_success_is_one_whole_object(box: Box) -> None:
    done = box.run("--seed", "-n", "3", "--model", MODEL, "--max-tokens", "20", "--json").expect(0)
    said = done.json
    assert set(said) == {
        *("run_id", "model", "num_stages", "prompt_tokens", "tokens", "text", "finish_reason", "timings"),
        *("decode_tok_s", "ttft_s", "members", "edges", "exit_status"),
    }
    assert said["model"] == MODEL
    assert said["tokens"] == stub_ids(DEFAULT_PROMPT, 20, MODEL)
    assert len(said["run_id"]) == 32
    assert said["decode_tok_s"] > 0
    assert said["ttft_s"] > 0
    timings = said["timings"]
    stages, hop_parts = timings.pop("stages"), timings.pop("hop_parts")
    for times in (timings, hop_parts):
        assert all(isinstance(seconds, float) and seconds >= 0 for seconds in times.values()), times
    assert [stage["stage"] for stage in stages] == [0, 1, 2]
    for stage in stages:
        assert stage["device"] == "STUB"
        for name in ("load_s", "compile_s", "ready_s", "prefill_s", "decode_p50_s", "decode_p99_s"):
            assert isinstance(stage[name], float), (name, stage)


def test_json_on_a_usage_error(box: Box) -> None:
    for arguments in (["--seed", "--num-stages", "1"], ["--seed", "--max-tokens", "many"], ["--nonsense"], []):
        said = box.run(*arguments, "--json").expect(2).json
        assert said["exit_status"] == 2
        assert set(said["error"]) >= {"code", "stage", "phase", "message"}


def test_json_on_failure_keeps_the_tokens_so_far(box: Box) -> None:
    model = "stub:layers=4,fail_at=5,at_stage=1,step_ms=50"
    said = box.run("--seed", "--model", model, "--json").expect(1).json
    assert said["exit_status"] == 1
    assert said["tokens"] == stub_ids(DEFAULT_PROMPT, 5, model)
    assert said["text"] == stub_text(DEFAULT_PROMPT, 5, model)
    assert said["finish_reason"] is None
    assert set(said["error"]) >= {"code", "stage", "phase", "message"}


def test_a_failure_leaves_the_text_so_far_on_stdout(box: Box) -> None:
    model = "stub:layers=4,fail_at=5,at_stage=1,step_ms=50"
    done = box.run("--seed", "--model", model).failed(1, "stage 1")
    assert done.text == stub_text(DEFAULT_PROMPT, 5, model)


def test_the_prompt_from_standard_input(box: Box) -> None:
    prompt = "Über die\nPipe"
    status, out, err = shell(box, f"printf '{prompt}' | pp --seed --model {MODEL} --max-tokens 16 --prompt -")
    assert status == 0, err
    assert out.decode() == stub_text(prompt, 16, MODEL)


def test_standard_input_that_is_no_text(box: Box) -> None:
    path = box.tmp.parent / "prompt"
    path.write_bytes(b"caf\xe9")
    with path.open("rb") as stdin:
        box.run("--seed", "--model", MODEL, "--prompt", "-", stdin=stdin).refused(2, "not UTF-8", "byte 3")


def test_an_empty_standard_input(box: Box) -> None:
    box.run("--seed", "--model", MODEL, "--prompt", "-").refused(2, "the prompt is empty")


def test_two_runs_side_by_side(box: Box) -> None:
    """With one state directory, and ended in any order."""
    first = box.start("--seed", "-n", "3", "--model", SLOW, "--max-tokens", "60", "--debug")
    second = box.start("--seed", "-n", "2", "--model", SLOW, "--max-tokens", "2000", "--context", "4096", "--debug")
    first.wait_output()
    second.wait_output()
    second.strike(second.node(1))
    assert first.end().expect(0).text == stub_text(DEFAULT_PROMPT, 60, SLOW)
    second.end().failed(1, "stage 1's node was killed")
    assert len({path.parent for path in box.logs()}) == 2


def test_plan_spawns_nothing(box: Box) -> None:
    done = box.run("--seed", "-n", "3", "--model", "stub:layers=8,hidden=64", "--plan").expect(0)
    for part in ("8 blocks", "stage", "first", "middle", "last", "0-2", "3-5", "6-7", "TokenIn", "Feedback", "256 B"):
        assert part.lower() in done.text.lower(), done.text
    assert done.err == ""
    assert list(box.state.iterdir()) == []


def test_logs_go_where_they_were_asked_to(box: Box) -> None:
    folder = box.root / "some" / "logs"
    box.run("--seed", "--model", MODEL, "--max-tokens", "2", "--log-dir", str(folder)).expect(0)
    files = ["environment.json", "events.jsonl", "plan.json", "run.json", "spans.jsonl", "stage-0.log", "stage-1.log"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert "worker" in (folder / "stage-0.log").read_text()
    assert list(box.state.iterdir()) == []


def test_options_of_the_environment_do_not_leak_into_the_run(box: Box, tmp_path: Path) -> None:
    """A stray STAGE or stub switch in the user's shell changes nothing; nor do modules in the current directory."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "json.py").write_text("raise SystemExit('shadowed')")
    stray = {"STAGE": "7", "NUM_STAGES": "1", "PP_WORKER_STUB": "0", "PEER_DIRECT": "nonsense", "PP_NODE_KEY": "zz"}
    done = box.start("--seed", "--model", MODEL, "--max-tokens", "16", "--json", env=stray, cwd=shadow).end().expect(0)
    assert json.loads(done.out)["text"] == stub_text(DEFAULT_PROMPT, 16, MODEL)
