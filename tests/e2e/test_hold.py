"""--hold: further prompts from standard input on the same chain, each answered as if it were a run of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from ppsmoke.orchestrator.machine import Phase
from ppsmoke.stub_model import stub_encode
from tests.e2e.kit import NOTICED_S, PATIENCE_S, Box, Program, stub_ids, stub_text, wait_until

MODEL = "stub:layers=6"
SLOW = "stub:layers=6,step_ms=20"
FIRST = "Say hello"


def held(box: Box, *arguments: str, model: str = MODEL, **how: object) -> Program:
    """A run that reads the prompts behind the first one from a pipe."""
    return box.start(
        "--seed", "--model", model, "--hold", "--debug", "--prompt", FIRST, *arguments, stdin=subprocess.PIPE, **how
    )


def say(run: Program, *prompts: str) -> None:
    assert run.process.stdin is not None
    run.process.stdin.write("".join(f"{prompt}\n" for prompt in prompts).encode())
    run.process.stdin.flush()


def end_of_input(run: Program) -> None:
    assert run.process.stdin is not None
    run.process.stdin.close()


def wait_idle(run: Program, answers: int) -> None:
    """Until so many answers are whole and the next prompt is waited for."""
    wait_until(f"{answers} answers", lambda: sum(line.startswith("answer  ") for line in run.lines) == answers)


@pytest.mark.parametrize(
    ("stages", "feedback"),
    [("2", "orchestrator"), ("3", "direct"), pytest.param("5", "direct", marks=pytest.mark.slow)],
)
def test_every_prompt_is_answered_as_in_a_run_of_its_own(box: Box, stages: str, feedback: str) -> None:
    """More of them than a worker keeps requests: each forgets the former one."""
    prompts = [FIRST, *(f"prompt {number}, of {'many ' * number}words" for number in range(10))]
    run = held(box, "-n", stages, "--feedback", feedback, "--max-tokens", "12")
    say(run, *prompts[1:])
    end_of_input(run)
    done = run.end().expect(0)
    assert done.text == "".join(f"{stub_text(prompt, 12, MODEL)}\n" for prompt in prompts)
    assert done.errors == []
    assert "done  11 answers" in done.err


def test_what_cannot_be_served_is_refused_and_the_hold_goes_on(box: Box) -> None:
    """Also: behind a longer prompt there is less room, behind a shorter one more."""
    long, longer, short = "x" * 36, "x" * 41, "x"
    run = held(box, "--context", "40", "--max-tokens", "10", "--prompt", "y" * 35, "--quiet")
    say(run, longer, "", long, "é", short)
    assert run.process.stdin is not None
    run.process.stdin.write(b"caf\xe9\nlast")  # no UTF-8; and a last line without its end
    end_of_input(run)
    done = run.end().expect(0)
    wanted = [("y" * 35, 6), (long, 5), ("é", 10), (short, 10), ("last", 10)]
    assert done.text == "".join(f"{stub_text(prompt, count, MODEL)}\n" for prompt, count in wanted)
    refused = [line for line in done.err.splitlines() if line.startswith("refused: ")]
    assert [("41 tokens" in line, "empty" in line, "UTF-8" in line) for line in refused] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_json_is_an_object_a_line_and_the_runs_own_at_the_end(box: Box) -> None:
    run = held(box, "--json", "--max-tokens", "6")
    say(run, "two", "", "four")
    end_of_input(run)
    *said, last = [json.loads(line) for line in run.end().expect(0).text.splitlines()]
    assert [body["prompt"] for body in said] == [1, 2, 3, 4]
    for body, prompt in zip(said, (FIRST, "two", None, "four"), strict=True):
        if prompt is None:
            assert set(body) == {"prompt", "error"}
            assert body["error"]["message"] == "the prompt is empty"
            assert "Type some text" in body["error"]["remedy"]
            continue
        assert set(body) == {*("prompt", "prompt_tokens", "tokens", "text", "finish_reason", "ttft_s", "decode_tok_s")}
        assert body["tokens"] == stub_ids(prompt, 6, MODEL)
        assert body["prompt_tokens"] == len(stub_encode(prompt))
    assert (last["answers"], last["exit_status"], last["tokens"]) == (3, 0, said[-1]["tokens"])


def test_without_a_prompt_the_first_one_is_waited_for_too(box: Box) -> None:
    arguments = ("--seed", "-n", "3", "--model", MODEL, "--hold", "--json", "--debug", "--max-tokens", "6")
    run = box.start(*arguments, stdin=subprocess.PIPE)
    wait_until("it is ready", lambda: any("WaitingReady -> Idle" in line for line in run.lines))
    say(run, "one", "two")
    end_of_input(run)
    *said, last = [json.loads(line) for line in run.end().expect(0).text.splitlines()]
    assert [(body["prompt"], body["tokens"]) for body in said] == [
        (number, stub_ids(prompt, 6, MODEL)) for number, prompt in ((1, "one"), (2, "two"))
    ]
    assert (last["answers"], last["prompt_tokens"]) == (2, len(stub_encode("two")))
    assert last["timings"]["ready_s"] > 0


def test_without_any_prompt_there_is_no_answer_and_that_is_no_failure(box: Box) -> None:
    done = box.run("--seed", "--model", MODEL, "--hold").expect(0)
    assert done.text == ""
    assert done.errors == []
    assert "prompts from standard input" in done.err
    assert "done  0 answers" in done.err


def test_ctrl_c_while_a_prompt_is_waited_for_is_the_normal_end(box: Box) -> None:
    run = held(box, "--max-tokens", "6")
    wait_idle(run, 1)
    say(run, "two")
    wait_idle(run, 2)
    run.signal_group(signal.SIGINT)
    done = run.end().expect(0)
    assert done.errors == []
    assert "done  2 answers" in done.err
    assert done.took_s < NOTICED_S


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)]
)
def test_other_signals_are_told_apart_from_that(box: Box, number: signal.Signals, status: int) -> None:
    run = held(box, "--max-tokens", "6")
    wait_idle(run, 1)
    run.signal(number)
    run.end().failed(status, number.name)


def test_a_terminal_that_is_closed_while_a_prompt_is_waited_for_is_a_hangup(box: Box) -> None:
    ours, theirs = pty.openpty()
    run = box.start(
        *("--seed", "--hold", "--model", MODEL, "--debug"),
        stdin=theirs,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    run.wait_line("-> Idle")
    time.sleep(0.5)  # by then the thread that reads lines waits for one, and its failure comes before the signal
    os.close(ours)
    run.end().failed(129, "interrupted by SIGHUP")


def test_ctrl_c_in_an_answer_is_an_interrupt(box: Box) -> None:
    run = held(box, "--max-tokens", "400", "--prompt", "x", model=f"{SLOW},eos_after=3")
    wait_idle(run, 1)
    run.out.clear()
    say(run, "two")
    run.wait_output()
    run.signal(signal.SIGINT)
    run.end().failed(130, "interrupted by SIGINT")


@pytest.mark.slow
def test_ctrl_c_while_an_answer_is_not_taken_is_an_interrupt_too(box: Box) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"." * (65536 - 4))
    with open(writing, "wb") as stdout:
        run = held(box, "--max-tokens", "6", stdout=stdout)
    wait_until("the first tokens", lambda: _unread(reading) == 65536)
    run.signal(signal.SIGINT)
    run.end().failed(130, "SIGINT")
    os.close(reading)


def _unread(pipe: int) -> int:
    """Bytes in it."""
    answer = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, answer)
    return int.from_bytes(answer, sys.byteorder)


@pytest.mark.parametrize("victim", ["node", "worker"])
def test_a_stage_that_dies_while_nothing_is_asked_is_named_at_once(box: Box, victim: str) -> None:
    run = held(box, "-n", "3", "--max-tokens", "6")
    wait_idle(run, 1)
    run.strike(run.node(1) if victim == "node" else run.worker(1))
    run.wait_line(rf"{Phase.IDLE} -> {Phase.TEARING_DOWN}", NOTICED_S)
    done = run.end().failed(1, "stage 1's", "SIGKILL")
    assert "waiting for a prompt" in done.err
    assert done.text == f"{stub_text(FIRST, 6, MODEL)}\n"


def test_the_deadline_between_tokens_holds_for_every_answer(box: Box) -> None:
    """The second prompt travels in two parts, and so reaches a step that the first one did not."""
    run = held(box, "--max-tokens", "4", "--token-timeout", "1", model=f"{MODEL},hang_at=4,at_stage=1")
    wait_idle(run, 1)
    say(run, "two " * 10)
    (error,) = run.end().expect(1).errors
    # The worker's own deadline is a little shorter; on a busy machine either may be noticed first.
    assert re.search("stage 1's worker did not finish decode .* within|token 3 took longer than 1 s", error, re.I), (
        error
    )


def test_a_slow_reader_of_many_answers_loses_nothing(box: Box) -> None:
    """Nobody reads for longer than the deadline between two tokens."""
    prompts = [FIRST, *(f"prompt {number}" for number in range(4))]
    reading, writing = os.pipe()
    filled = os.write(writing, b"." * (65536 - 20))
    with open(writing, "wb") as stdout:
        run = held(box, "--max-tokens", "16", "--token-timeout", "1", stdout=stdout)
    say(run, *prompts[1:])
    end_of_input(run)
    wait_idle(run, 1)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(2)
    received = bytearray()
    while data := os.read(reading, 4096):
        received += data
    os.close(reading)
    run.end().expect(0)
    assert received[filled:].decode() == "".join(f"{stub_text(prompt, 16, MODEL)}\n" for prompt in prompts)


def test_a_reader_that_had_enough_ends_the_hold(box: Box) -> None:
    reading, writing = os.pipe()
    with open(writing, "wb") as stdout:
        run = held(box, "--max-tokens", "6", stdout=stdout)
    wait_idle(run, 1)
    os.close(reading)
    say(run, "two")
    assert run.end().expect(0).errors == []


def test_at_a_terminal_a_sign_shows_that_a_prompt_is_awaited(box: Box) -> None:
    ours, theirs = pty.openpty()
    run = box.start(
        *("--seed", "--model", MODEL, "--hold", "--max-tokens", "6"),
        env={"TERM": "dumb"}, stdin=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    for typed in ("one\n", "two\n", "\x04"):
        seen = _read_until(ours, seen, "\r\n> ")
        os.write(ours, typed.encode())
    seen = _read_until(ours, seen, "done  2 answers")
    assert run.end().expect(0).text == "".join(f"{stub_text(prompt, 6, MODEL)}\n" for prompt in ("one", "two"))
    os.close(ours)


def _read_until(terminal: int, seen: str, text: str) -> str:
    """What was shown, once it has `text` behind what was seen before."""
    shown, end = "", time.monotonic() + PATIENCE_S
    while text not in shown:
        assert time.monotonic() < end, seen + shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096).decode()
    return seen + shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "--hold", "--prompt", "-"], "reads its prompts from standard input"),
        (["--seed", "--hold", "--verify"], "--hold and --verify exclude each other"),
        pytest.param(["--teardown", "--hold"], "no place beside --teardown", marks=pytest.mark.slow),
    ],
)
def test_combinations_that_make_no_sense(box: Box, arguments: list[str], says: str) -> None:
    box.run(*arguments).refused(2, says)
