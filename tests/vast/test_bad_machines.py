"""The memory of machines that failed: what counts, for how long, and that the file survives everything."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from ppsmoke.vast.bad_machines import (
    FORGET_AFTER_S,
    BadMachine,
    bad_machines_file,
    merge_failures,
    parse_bad_machines,
    read_bad_machines,
    remember_failures,
    render_bad_machines,
)
from tests.vast.kit import NOW

DAY = 24 * 3600.0


def test_a_failure_is_remembered_for_a_week() -> None:
    machine = BadMachine(7, 1, NOW, "x")
    assert machine.is_avoided(NOW)
    assert machine.is_avoided(NOW + FORGET_AFTER_S - 1)
    assert not machine.is_avoided(NOW + FORGET_AFTER_S)
    assert machine.is_avoided(NOW - DAY), "a clock that was set back"


def test_each_further_failure_counts_twice_as_long_up_to_two_months() -> None:
    assert BadMachine(7, 2, NOW, "x").is_avoided(NOW + 13 * DAY)
    assert not BadMachine(7, 2, NOW, "x").is_avoided(NOW + 14 * DAY)
    assert BadMachine(7, 1000, NOW, "x").is_avoided(NOW + 59 * DAY)
    assert not BadMachine(7, 1000, NOW, "x").is_avoided(NOW + 60 * DAY)


def test_failures_are_merged_and_what_is_over_is_dropped() -> None:
    known = [BadMachine(1, 1, NOW - 8 * DAY, "old"), BadMachine(2, 1, NOW - DAY, "one"), BadMachine(3, 2, NOW, "two")]
    merged = merge_failures(known, {2: "again", 9: "new" * 100}, NOW)
    assert [(m.machine_id, m.failures, m.last_failed_at) for m in merged] == [(2, 2, NOW), (3, 2, NOW), (9, 1, NOW)]
    assert merged[0].reason == "again"
    assert len(merged[2].reason) == 200


def test_a_machine_that_served_its_time_begins_anew() -> None:
    merged = merge_failures([BadMachine(1, 3, NOW - 40 * DAY, "old")], {1: "now"}, NOW)
    assert [(m.machine_id, m.failures) for m in merged] == [(1, 1)]


def test_the_file_does_not_grow_for_ever() -> None:
    known = [BadMachine(number, 1, NOW - number, "x") for number in range(1, 600)]
    assert len(merge_failures(known, {1000: "x"}, NOW)) == 500
    assert 1000 in {m.machine_id for m in merge_failures(known, {1000: "x"}, NOW)}


def test_what_is_written_is_read() -> None:
    machines = [BadMachine(1, 2, NOW, "device injection"), BadMachine(5, 1, NOW - 3, "")]
    assert parse_bad_machines(render_bad_machines(machines)) == machines


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '{"machines": 7}', '{"machines": [7, null, {}]}', '{"other": []}', "[" * 100_000],
)
def test_a_damaged_file_is_an_empty_one(text: str) -> None:
    assert parse_bad_machines(text) == []


def test_one_damaged_row_does_not_cost_the_others() -> None:
    good = {"machine_id": 1, "failures": 1, "last_failed_at": NOW, "reason": "x"}
    bad = [{**good, "failures": 0}, {**good, "last_failed_at": "soon"}, {**good, "last_failed_at": 1e999}, "x"]
    assert [m.machine_id for m in parse_bad_machines(json.dumps({"machines": [*bad, good]}))] == [1]


def test_the_file_lies_in_the_users_state_directory() -> None:
    path = bad_machines_file({"XDG_STATE_HOME": "/state"})
    assert path == Path("/state/pp-smoke-run/bad-machines.json")


def test_a_failure_is_remembered_across_runs(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bad-machines.json"
    assert read_bad_machines(path, NOW) == frozenset()
    remember_failures(path, {}, NOW)
    assert not path.exists()
    remember_failures(path, {52077: "device injection"}, NOW)
    remember_failures(path, {17903: "driver"}, NOW + DAY)
    assert read_bad_machines(path, NOW + DAY) == frozenset({52077, 17903})
    assert read_bad_machines(path, NOW + 7.5 * DAY) == frozenset({17903})
    assert {p.name for p in path.parent.iterdir()} == {"bad-machines.json", "bad-machines.json.lock"}


def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad-machines.json"
    threads = [threading.Thread(target=remember_failures, args=(path, {n: "x"}, NOW)) for n in range(1, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_bad_machines(path, NOW) == frozenset(range(1, 21))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bad-machines.json"
    remember_failures(path, {1: "x"}, NOW)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ppsmoke.durable.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        remember_failures(path, {2: "y"}, NOW)
    assert read_bad_machines(path, NOW) == frozenset({1})
    assert {p.name for p in tmp_path.iterdir()} == {"bad-machines.json", "bad-machines.json.lock"}
