"""The edges of a run: a signal before it, after it or behind another one, and a reader who is slow or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.kit import NODE, SCRIPT, Box, stub_text, wait_until

STUB = "stub:layers=8"


def test_the_last_text_waits_for_a_slow_reader(box: Box) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filler = 0
    try:
        while True:
            filler += os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    run = box.start("--seed", "--model", STUB, "--max-tokens", "1", "--debug", read_stdout=False, stdout=writing)
    os.close(writing)
    run.wait_line("TearingDown -> Done")
    # Every process of the run is gone, and the text is still to be taken.
    wait_until("the end of the nodes", lambda: len(box.processes()) == 1)
    with open(reading, "rb") as reader:
        text = reader.read()[filler:]
    run.end().expect(0)
    assert text.decode() == stub_text("Say hello", 1, STUB)


def test_ctrl_c_ends_the_wait_for_a_reader(box: Box) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    run = box.start("--seed", "--model", STUB, "--max-tokens", "1", "--debug", read_stdout=False, stdout=writing)
    os.close(writing)
    run.wait_line("TearingDown -> Done")
    wait_until("the end of the nodes", lambda: len(box.processes()) == 1)
    run.signal(signal.SIGINT)
    run.end().failed(130, "interrupted by SIGINT")
    os.close(reading)


@pytest.mark.parametrize(("model", "status"), [("nonesuch", 2), (f"{STUB},fail_at=0", 1)])
def test_a_failure_stays_one_when_nobody_reads_its_json(box: Box, model: str, status: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = box.start("--seed", "--model", model, "--json", read_stdout=False, stdout=writing)
    os.close(writing)
    run.end().failed(status)


def test_a_signal_in_the_teardown_keeps_the_verification_from_beginning(box: Box) -> None:
    run = box.start("--seed", "--model", STUB, "--max-tokens", "2", "--debug", "--verify")
    run.wait_line("Running -> TearingDown")
    run.signal(signal.SIGINT)
    done = run.end().failed(130, "interrupted by SIGINT")
    assert "verified" not in done.err


def test_what_was_ignored_before_stays_ignored(box: Box) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = box.start("--seed", "--model", f"{STUB},step_ms=20", "--max-tokens", "20", "--debug")
    finally:
        signal.signal(signal.SIGHUP, before)
    run.wait_line("WaitingReady -> Running")
    run.signal(signal.SIGHUP)
    assert len(run.end().expect(0).out) == 20


def test_signal_upon_signal_leaves_no_traceback(box: Box) -> None:
    run = box.start("--seed", "--model", STUB, "--prompt", "-", stdin=subprocess.PIPE)
    assert run.process.stdin is not None
    run.process.stdin.write(b"x" * 2**18)  # more than a pipe holds: it reads
    run.process.stdin.flush()
    for _ in range(20):
        run.signal(signal.SIGINT)
    done = run.end().expect(130)
    assert "Traceback" not in done.err


def test_ctrl_c_while_the_program_is_loaded(box: Box) -> None:
    run = box.start("--seed", "--model", STUB, program=(sys.executable, "-X", "importtime", SCRIPT))
    run.wait_line(r"\| +ppsmoke\.entry$")
    run.signal(signal.SIGINT)
    done = run.end().expect(-signal.SIGINT)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("option", ["--prompt", "--system"])
def test_a_prompt_that_is_no_text(box: Box, option: str) -> None:
    box.run("--seed", "--model", STUB, option, os.fsdecode(b"caf\xe9")).refused(2, option, "UTF-8")


def test_a_log_directory_with_something_in_it(box: Box) -> None:
    (box.root / "logs" / "stage-1.log").mkdir(parents=True)
    box.run("--seed", "--model", STUB, "--log-dir", str(box.root / "logs")).refused(2, "run directory", "not empty")


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full"])
def test_a_node_whose_standard_streams_are_of_no_use(box: Box, streams: str) -> None:
    done = box.run(program=("/bin/sh", "-c", f'exec "$@" {streams}', "sh", *NODE))
    done.expect(2)
    assert "Traceback" not in done.err
