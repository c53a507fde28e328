"""What a run knows and says of its members."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.kit import NOTICED_S, Box, stub_text, wait_until
from tests.e2e.phases import MIDDLE, STAGES, start_in

MODEL = "stub:layers=8"
SILENCE_S = 5.0
"""The default of --silence-timeout."""


def test_the_table_is_shown_after_boot_and_at_the_end(box: Box) -> None:
    done = box.run("--seed", "-n", str(STAGES), "--model", MODEL, "--max-tokens", "8", "--members").expect(0)
    assert done.text == stub_text("Say hello", 8, MODEL)
    for title in ("members after boot: 4 of 4 alive", "members at the end: 4 of 4 alive"):
        _, _, table = done.err.partition(title)
        head, *rows = table.splitlines()[1 : STAGES + 3]
        assert head.split() == ["stage", "role", "state", "inc", "round", "trip", "path", "names"]
        assert [row.split()[:4] for row in rows] == [
            ["-", "orchestrator", "alive", "0"],
            ["0", "First", "alive", "0"],
            ["1", "Middle", "alive", "0"],
            ["2", "Last", "alive", "0"],
        ]
        assert "self" in rows[0]
        assert all("direct" in row for row in rows[1:])
        assert rows[0].endswith("pp-orchestrator")
        assert rows[1].endswith("pp-stage-0 pp-entry")
        assert rows[3].endswith("pp-stage-2 pp-exit")
    assert "\nmember " not in done.err, "nothing changed between"


def test_json_has_the_members(box: Box) -> None:
    done = box.run("--seed", "-n", str(STAGES), "--model", MODEL, "--max-tokens", "8", "--json").expect(0)
    members = done.json["members"]
    assert [member["stage"] for member in members] == [None, 0, 1, 2]
    assert {member["state"] for member in members} == {"alive"}
    assert members[1]["names"] == ["pp-entry", "pp-stage-0"]
    assert "members after" not in done.err


def test_a_stage_that_hangs_is_named_by_its_silence(box: Box) -> None:
    """The chain waits for nothing but its first token, whose deadline is minutes away."""
    run = start_in(box, "prefill", MIDDLE, "--members", "--json")
    run.strike(run.node(MIDDLE), signal.SIGSTOP)
    done = run.end()
    done.failed(1, f"stage {MIDDLE} fell silent")
    assert done.took_s < SILENCE_S + NOTICED_S
    error = done.json["error"]
    assert error["code"] == "peer_lost"
    assert error["stage"] == MIDDLE
    assert error["phase"] == "prefill"
    states = {member["stage"]: member["state"] for member in done.json["members"]}
    assert states == {None: "alive", 0: "alive", 1: "dead", 2: "alive"}
    assert f"member stage {MIDDLE} " in done.err
    assert ": suspect (" in done.err
    assert ": dead (" in done.err
    assert f"members at the end: {STAGES} of {STAGES + 1} alive" in done.err
    assert "--silence-timeout 20 bears 6.8 s of that, 5 no more than 1.7 s" in error["remedy"]


@pytest.mark.slow
def test_a_stage_that_stands_still_for_as_long_as_the_option_bears_costs_no_run(box: Box) -> None:
    """As the error says that a run with the usual patience ends with."""
    model = "stub:layers=8,step_ms=20"
    run = box.start(
        *("--seed", "-n", str(STAGES), "--model", model, "--max-tokens", "90", "--silence-timeout", "20", "--debug")
    )
    middle = run.node(MIDDLE)
    run.wait_output()
    os.kill(middle, signal.SIGSTOP)
    time.sleep(5.0)
    os.kill(middle, signal.SIGCONT)
    assert run.end().expect(0).text == stub_text("Say hello", 90, model)


def test_an_orchestrator_that_hangs_is_left_by_its_nodes(box: Box) -> None:
    run = start_in(box, "decode", MIDDLE)
    run.strike(run.process.pid, signal.SIGSTOP)
    try:

        def nodes() -> list[str]:
            return [line for line in box.living() if "ppsmoke.cli" not in line]

        wait_until("the end of all nodes", lambda: not nodes(), SILENCE_S + NOTICED_S)
    finally:
        run.signal(signal.SIGCONT)
    done = run.end().failed(1, "ended because it had not heard from this process: ")
    assert "stood still" in done.err
