"""What goes wrong in a rented run with real nodes: it ends with the right words, and nothing that costs is left."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.errors import LeasesLeft
from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from tests.vast.emulated import Emulated
from tests.vast.rented import DEADLINES, STUB, Rented, end_machine, once, rent_and_run, send, stub_options
from tests.vast_emulator.faults import Rule

SLOW = "stub:layers=6,step_ms=300"
HANGS_ONCE = """#!/bin/sh
if [ -z "$1" ] && [ "$STAGE" = 1 ] && mkdir "{folder}/hung" 2>/dev/null; then exec sleep 300; fi
exec {{python}} -P -m ppsmoke.node_cli "$@"
"""


def expect_nothing_left(done: Rented, folder: Path) -> None:
    assert done.left == [], done.told()
    assert done.billed_after == 0
    assert {one["state"] for one in done.report.instances if one["id"] is not None} <= {"gone"}
    assert (folder / "logs" / "rental.json").is_file()


def expect_text(done: Rented, model: str = STUB) -> None:
    assert done.result.error is None, done.told()
    assert done.result.tokens == stub_tokens(stub_encode("hello"), 8, parse_stub_model(model))


def test_a_machine_whose_node_never_joins_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    options = stub_options(tmp_path, 2, deadlines=replace(DEADLINES, join=12.0))
    done = rent_and_run(tmp_path, options, program=HANGS_ONCE.format(folder=tmp_path))
    expect_text(done)
    expect_nothing_left(done, tmp_path)
    asked = [create["env"]["STAGE"] for create in done.creates]
    assert sorted(asked) == ["0", "1", "1"]
    keys = {create["env"]["PP_NODE_KEY"] for create in done.creates}
    assert len(keys) == 3, "a machine that was given up must not come back as a member"
    assert any("it did not join within 12 s" in line for line in done.watcher.lines)
    assert (
        "stage 1" in (tmp_path / "bad-machines.json").read_text()
        or "did not join" in (tmp_path / "bad-machines.json").read_text()
    )


def test_a_machine_that_fails_before_it_runs_is_replaced(tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), faults="host:1=device,host:3=vanishes")
    expect_text(done)
    expect_nothing_left(done, tmp_path)
    assert len(done.creates) >= 3


def test_a_machine_that_ends_while_its_stage_loads_faults_the_run_with_its_stage(tmp_path: Path) -> None:
    options = stub_options(tmp_path, 2, "stub:layers=6,load_ms=4000")
    done = rent_and_run(tmp_path, options, on_news=once("Planning -> Provisioning", end_machine(1)))
    assert done.result.error is not None
    assert done.result.error.stage == 1, done.told()
    assert done.result.exit_status == 1
    expect_nothing_left(done, tmp_path)


def test_a_machine_that_ends_while_it_computes_faults_the_run_with_its_stage(tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), on_news=once("^text ", end_machine(0)))
    assert done.result.error is not None
    assert done.result.error.stage == 0, done.told()
    assert 1 <= len(done.result.tokens) < 8
    expect_nothing_left(done, tmp_path)


def test_a_storm_of_refusals_is_waited_out(tmp_path: Path) -> None:
    faults = "list:2-5=429_text,create:2=429_json,destroy:1-2=429_short,logs:1=429_detail"
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), faults=faults)
    expect_text(done)
    expect_nothing_left(done, tmp_path)


@pytest.mark.parametrize(
    ("faults", "when", "number"),
    [
        ("host:*=hangs", "rented instance", signal.SIGINT),
        ("", "Planning -> Provisioning", signal.SIGTERM),
        ("", "^text ", signal.SIGHUP),
    ],
    ids=["while renting", "while preparing", "while computing"],
)
def test_a_signal_gives_everything_back_with_the_logs(
    faults: str, when: str, number: signal.Signals, tmp_path: Path
) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), faults=faults, on_news=once(when, send(number)))
    assert done.result.exit_status == 128 + number, done.told()
    expect_nothing_left(done, tmp_path)
    assert any(line.startswith(f"{number.name}: stopping ") for line in done.watcher.lines)
    assert list((tmp_path / "logs").glob("instance-*.log"))


PHASES = {
    "renting": "rented instance",
    "convergence": "instance .* is running",
    "preparing": "Planning -> Provisioning",
    "barrier": "Provisioning -> WaitingReady",
    "prefill": "WaitingReady -> Running",
    "decode": "^text ",
    "teardown": "Running -> TearingDown",
}


def lose_network(cloud: Emulated) -> None:
    """The next ten calls, whatever they ask, reach nobody."""
    faults = cloud.service.faults
    since = faults.counts["any"] + 1
    faults.rules += (Rule("any", since, since + 9, "drop_before"),)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_network_that_is_lost_for_a_while_in_any_phase_ends_no_run(phase: str, tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), on_news=once(PHASES[phase], lose_network))
    expect_text(done, SLOW)
    expect_nothing_left(done, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_any_phase_gives_everything_back(phase: str, tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), on_news=once(PHASES[phase], send(signal.SIGINT)))
    assert done.result.exit_status == 130, done.told()
    expect_nothing_left(done, tmp_path)


def test_a_second_signal_destroys_without_waiting_for_logs(tmp_path: Path) -> None:
    twice = once("^text ", send(signal.SIGINT, signal.SIGTERM))
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), faults="logs:*=timeout_before", on_news=twice)
    assert done.result.exit_status == 130, done.told()
    expect_nothing_left(done, tmp_path)
    assert any("without waiting for logs" in line for line in done.watcher.lines)
    assert list((tmp_path / "logs").glob("instance-*.log")) == []


def test_what_cannot_be_verified_is_named_with_its_price_and_the_command_and_the_status_is_4(tmp_path: Path) -> None:
    third = once("lease destroy", send(signal.SIGINT, signal.SIGINT, signal.SIGINT))
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), faults="destroy:*=500", on_news=third)
    left = done.result.left_behind
    assert isinstance(left, LeasesLeft), done.told()
    assert done.result.exit_status == 4
    assert "SIGINT came 3 times" in str(left)
    assert len(done.left) == 2
    for one in done.report.instances:
        assert f"instance {one['id']} may still be there, at {one['price_per_hour_usd']:.3f} USD an hour" in str(left)
        assert f" --label {one['label']} --yes" in str(left)
    assert "pp-smoke-run --teardown --vast-url http://127.0.0.1:" in str(left)


def test_a_budget_that_is_spent_ends_the_run(tmp_path: Path) -> None:
    options = stub_options(tmp_path, 2, deadlines=replace(DEADLINES, budget=3.0))
    done = rent_and_run(tmp_path, options, faults="host:2=hangs")
    assert done.result.error is not None
    assert (done.result.error.code, done.result.exit_status) == ("deadline_exceeded", 1)
    assert "the budget of 3 s is spent" in str(done.result.error)
    assert any("s left, waiting for stage" in text for text in done.watcher.waits)
    expect_nothing_left(done, tmp_path)


def test_a_journal_that_cannot_be_written_rents_nothing(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2))
    assert done.result.exit_status == 3, done.told()
    assert done.creates == []


def test_a_fault_of_this_program_gives_everything_back(tmp_path: Path) -> None:
    def hear(cloud: Emulated, text: str) -> None:
        stop(cloud, text)
        if text.startswith("SIGTERM: stopping"):
            raise ZeroDivisionError("a mistake")

    stop = once("^text ", send(signal.SIGTERM))
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW, max_tokens=100), on_news=hear)
    assert str(done.result.error) == "unexpected ZeroDivisionError: a mistake", done.told()
    assert done.result.exit_status == 1
    expect_nothing_left(done, tmp_path)
