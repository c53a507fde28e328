"""Which machines a rented run holds a failure against, for the runs after it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ppsmoke.vast.bad_machines import read_bad_machines
from tests.vast.rented import Rented, rent_and_run, stub_options


def remembered(folder: Path) -> frozenset[int]:
    return read_bad_machines(folder / "bad-machines.json", time.time())


def run(folder: Path, faults: str, replacements: int) -> Rented:
    return rent_and_run(folder, stub_options(folder, 2), faults=faults, replacements=replacements)


def test_a_machine_whose_container_ended_is_remembered_where_others_served(tmp_path: Path) -> None:
    rented = run(tmp_path, "host:1=exits", 1)
    assert rented.result.error is None, rented.told()
    failed = next(row for row in rented.report.instances if str(row["reason"]).startswith("its container ended"))
    assert remembered(tmp_path) == {failed["machine_id"]}


@pytest.mark.parametrize(("fate", "kept"), [("exits", False), ("no_space", True)])
def test_where_none_served_only_what_is_the_hosts_own_fault_is(tmp_path: Path, fate: str, kept: bool) -> None:
    rented = run(tmp_path, f"host:*={fate}", 0)
    assert rented.result.error is not None
    assert rented.left == []
    assert bool(remembered(tmp_path)) is kept, rented.told()
