"""The journal: on the disk before it returns, readable after any kill, never in the way of what it records."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppsmoke import process_mark
from ppsmoke.errors import EnvironmentFault, NotEnoughDisk
from ppsmoke.process_mark import Life, this_boot
from ppsmoke.vast.journal import KEPT_CLOSED, Journal, RunHeader, journal_dir, read_journal, read_journals, replay
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_labels import stage_label
from ppsmoke.vast.lease_owner import header_of_this_process, life
from ppsmoke.vast.lease_records import Lease, LeaseTimes, Standing

ROOT = Path(__file__).parents[2]
RUN_ID = "ab12" * 8
HEADER = RunHeader(RUN_ID, 4242, 1000.5, "here", "https://vast.example", "123456")
TIMES = LeaseTimes()
NOW, WALL = 500.0, 2_000_000.0


def label(stage: int, nonce: str = "a") -> str:
    return stage_label(RUN_ID, stage, nonce)


def intent(stage: int = 0, nonce: str = "a") -> Entry:
    return Entry(
        Kind.INTENT,
        label=label(stage, nonce),
        stage=stage,
        offer_id=31,
        machine_id=41,
        host_id=7,
        price_per_hour=0.25,
    )


def created(stage: int, instance_id: int, nonce: str = "a") -> Entry:
    return Entry(Kind.CREATED, label(stage, nonce), instance_id, stage)


def begun(directory: Path, *entries: Entry, at: float = WALL, run_id: str = RUN_ID) -> Path:
    journal = Journal.begin(directory, replace(HEADER, run_id=run_id), at=at)
    for entry in entries:
        journal.append(entry, at=at)
    journal.close()
    return journal.path


def leases(path: Path, *, later: float = 0.0) -> dict[str, Lease]:
    record = read_journal(path)
    assert record is not None
    return {x.label: x for x in replay(record, now=NOW, wall=WALL + later, times=TIMES)}


# ---- writing and reading


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), created(0, 100))
    record = read_journal(path)
    assert record is not None
    assert record.header == HEADER
    assert [x.entry for x in record.entries] == [intent(), created(0, 100)]
    assert {x.at for x in record.entries} == {WALL}
    assert (record.run_id, record.scope) == (RUN_ID, "pp-smoke-ab12ab12ab12")


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    path = begun(tmp_path / "leases")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_journals_lie_beside_the_runs_logs() -> None:
    assert journal_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/pp-smoke-run/leases")
    home = journal_dir({})
    assert home.is_absolute()
    assert journal_dir({"XDG_STATE_HOME": "state"}) == home, "else only this directory would lead to it"


def test_each_line_is_synced_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    journal = Journal.begin(tmp_path, HEADER, at=WALL)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(journal.path.read_bytes()))
    journal.append(intent(), at=WALL)
    journal.close()
    assert len(synced) == 1
    assert label(0).encode() in synced[0], "synced after it was written"


def test_the_new_files_name_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    path = begun(tmp_path)
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), created(0, 100))
    whole = path.read_bytes()
    first = whole.index(b"\n", whole.index(b"intent")) + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        (lease,) = leases(path).values()
        assert lease.ids == (() if cut < len(whole) - 1 else (100,))


def test_what_follows_a_torn_line_is_read(tmp_path: Path) -> None:
    path = begun(tmp_path, intent())
    with path.open("ab") as file:
        file.write(b'{"at":1,"kind":"crea')
    journal = Journal.reopen(path)
    journal.append(created(0, 100), at=WALL)
    journal.append(Entry(Kind.CLOSED), at=WALL)
    journal.close()
    record = read_journal(path)
    assert record is not None
    assert [x.entry.kind for x in record.entries] == [Kind.INTENT, Kind.CREATED, Kind.CLOSED]


def test_lines_of_another_version_and_of_a_crashed_disk_are_passed_over(tmp_path: Path) -> None:
    path = begun(tmp_path, intent())
    with path.open("ab") as file:
        file.write(b'{"at":1,"kind":"novel"}\n["x"]\n\0\0\0\0\n{"kind":"created"}\n\xff\xfe\n')
    record = read_journal(path)
    assert record is not None
    assert len(record.entries) == 1


@pytest.mark.parametrize(
    "damage",
    [
        *(
            {name: value}
            for name in ("kind", "at", "label", "instance_id", "reason", "stage")
            for value in ([], {}, True)
        ),
        {"at": 10**400},
        {"at": float("nan")},
        {"instance_id": "77"},
        {"price_per_hour": float("inf")},
        {"machine_id": 1.5, "host_id": "x", "offer_id": None},
    ],
    ids=str,
)
def test_a_line_with_the_wrong_kind_of_value_takes_nothing_else_along(damage: dict[str, Any], tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), created(0, 100))
    line = json.loads(path.read_text().splitlines()[-1]) | {"instance_id": 101} | damage
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    (lease,) = leases(path).values()
    assert set(lease.ids) <= {100, 101}
    assert 100 in lease.ids


@pytest.mark.parametrize("damage", [{"pid": float("inf")}, {"pid": []}, {"process_started": {}}], ids=str)
def test_a_damaged_header_leaves_what_was_rented_to_be_read(damage: dict[str, Any], tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), created(0, 100))
    header, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(header) | damage), *others]) + "\n")
    (record,) = read_journals(tmp_path)
    assert record.header is None
    assert life(record.header) is Life.UNKNOWN
    assert leases(path)[label(0)].ids == (100,)


def test_an_append_that_fails_tears_at_most_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.begin(tmp_path, HEADER, at=WALL)
    real = os.write
    room = [len(b'{"at":20')]

    def write(file: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(file, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NotEnoughDisk, match="No space left on device"):
        journal.append(intent(0), at=WALL)
    monkeypatch.setattr(os, "write", real)
    journal.append(intent(1), at=WALL)
    journal.close()
    assert set(leases(journal.path)) == {label(1)}


def test_a_disk_that_is_full_leaves_no_empty_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NotEnoughDisk):
        Journal.begin(tmp_path, HEADER, at=WALL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a Linux device")
def test_a_really_full_disk_is_a_sentence() -> None:
    journal = Journal(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(NotEnoughDisk) as caught:
        journal.append(intent(), at=WALL)
    journal.close()
    assert "XDG_STATE_HOME" in (caught.value.remedy or "")


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("a file, not a directory")
    with pytest.raises(EnvironmentFault, match="leases"):
        Journal.begin(tmp_path / "leases", HEADER, at=WALL)


def test_a_run_id_is_journaled_once(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(EnvironmentFault, match="File exists"):
        begun(tmp_path)


def test_a_process_killed_at_any_moment_leaves_a_readable_journal(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from tests.vast.test_journal import *\n"
        "journal = Journal.begin(pathlib.Path(sys.argv[1]), HEADER, at=WALL)\n"
        "print('begun', flush=True)\n"
        "for number in range(10**6):\n"
        "    journal.append(intent(0, f'n{number}'), at=WALL)\n"
        "    print(number, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child.stdout:
        for _ in range(20):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        told = [line for line in child.stdout.read().split() if line.isdigit()]
    child.wait()
    count = int(told[-1]) + 1 if told else 19
    (record,) = read_journals(tmp_path)
    assert count <= len(record.entries) <= count + 1, "what the process knew to be written is there"


# ---- what is still open


def test_a_journal_is_closed_when_it_says_so_or_never_asked_for_anything(tmp_path: Path) -> None:
    empty = begun(tmp_path, run_id="1" * 32)
    rented = begun(tmp_path, intent(), created(0, 1), run_id="2" * 32)
    ended = begun(tmp_path, intent(), Entry(Kind.CLOSED), run_id="3" * 32)
    again = begun(tmp_path, intent(), Entry(Kind.CLOSED), intent(1), run_id="4" * 32)
    found = {x.path: x.closed for x in read_journals(tmp_path)}
    assert found == {empty: True, rented: False, ended: True, again: False}


def test_old_closed_journals_go_and_open_ones_stay(tmp_path: Path) -> None:
    open_one = begun(tmp_path, intent(), at=1.0, run_id="0" * 32)
    for number in range(KEPT_CLOSED + 5):
        begun(tmp_path, intent(), Entry(Kind.CLOSED), at=10.0 + number, run_id=f"{number + 1:032x}")
    begun(tmp_path, run_id="f" * 32)
    paths = set(tmp_path.iterdir())
    assert open_one in paths
    assert len(paths) == KEPT_CLOSED + 2


def test_no_journals_are_none(tmp_path: Path) -> None:
    assert read_journals(tmp_path / "nowhere") == []
    assert read_journal(tmp_path / "gone.jsonl") is None


def test_a_journal_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / f"{RUN_ID}.jsonl").mkdir()
    with pytest.raises(EnvironmentFault):
        read_journals(tmp_path)


# ---- replaying


def test_an_intent_alone_may_still_become_an_instance(tmp_path: Path) -> None:
    path = begun(tmp_path, intent())
    fresh = leases(path, later=10.0)[label(0)]
    assert fresh.standing is Standing.ENDING
    assert fresh.ids == ()
    assert fresh.counts_from == NOW + TIMES.settle, "its process died just now, so the create went out before that"
    old = leases(path, later=1000.0)[label(0)]
    assert old.counts_from == NOW


def test_a_lost_answer_may_become_an_instance_for_a_while(tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), Entry(Kind.UNKNOWN, label(0), reason="no answer"))
    assert leases(path, later=20.0)[label(0)].counts_from == NOW - 20.0 + TIMES.settle
    assert leases(path, later=100.0)[label(0)].counts_from == NOW


@pytest.mark.parametrize("last", [None, Kind.RUNNING, Kind.FAILED, Kind.DESTROY, Kind.ACCEPTED, Kind.UNVERIFIED])
def test_what_was_made_and_not_verified_as_gone_is_to_be_ended(tmp_path: Path, last: Kind | None) -> None:
    entries = [intent(), created(0, 100)] + ([Entry(last, label(0), 100, 0)] if last else [])
    lease = leases(begun(tmp_path, *entries))[label(0)]
    assert (lease.standing, lease.ids, lease.counts_from) == (Standing.ENDING, (100,), NOW)
    assert not lease.all_accepted, "it is asked again: what was accepted then may not have happened"
    assert (lease.candidate.machine_id, lease.candidate.price_per_hour) == (41, 0.25)


def test_what_was_verified_is_done_with(tmp_path: Path) -> None:
    path = begun(tmp_path, intent(0), created(0, 100), intent(1), created(1, 110), Entry(Kind.GONE, label(0)))
    assert set(leases(path)) == {label(1)}


def test_a_refused_create_that_made_one_all_the_same_is_to_be_ended(tmp_path: Path) -> None:
    path = begun(tmp_path, intent(), Entry(Kind.REFUSED, label(0), 100, reason="queued"))
    assert leases(path)[label(0)].ids == (100,)


def test_a_result_without_its_intent_is_taken_all_the_same(tmp_path: Path) -> None:
    assert leases(begun(tmp_path, created(0, 100)))[label(0)].ids == (100,)


# ---- whose run it is


def test_this_process_is_alive() -> None:
    header = header_of_this_process(RUN_ID, "https://vast.example", None)
    assert life(header) is Life.ALIVE
    assert json.dumps(header.host)


def test_a_process_that_ended_is_dead_also_before_it_is_waited_for(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from tests.vast.test_journal import *\n"
        "Journal.begin(pathlib.Path(sys.argv[1]), header_of_this_process(RUN_ID, '', None), at=WALL)\n"
        "print('begun', flush=True)\n"
        "input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdout.readline()
        (record,) = read_journals(tmp_path)
        assert life(record.header) is Life.ALIVE
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert life(record.header) is Life.DEAD
        child.wait()
        assert life(record.header) is Life.DEAD


def test_another_process_with_the_same_id_is_not_the_run() -> None:
    header = header_of_this_process(RUN_ID, "", None)
    assert life(replace(header, process_started=header.process_started - 100)) is Life.DEAD


@pytest.mark.skipif(not this_boot(), reason="this system tells no boot id")
def test_setting_the_clock_and_starting_the_machine_anew_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    header = header_of_this_process(RUN_ID, "", None)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
    assert life(header) is Life.ALIVE
    assert life(replace(header, boot="another")) is Life.DEAD


def test_where_the_system_tells_no_boot_a_start_time_has_some_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_mark, "this_boot", lambda: "")
    header = header_of_this_process(RUN_ID, "", None)
    assert life(replace(header, process_started=header.process_started + 1)) is Life.ALIVE
    assert life(replace(header, process_started=header.process_started + 10)) is Life.DEAD
    assert life(replace(header, pid=2**22 + 1)) is Life.DEAD


def test_a_process_of_another_host_cannot_be_judged() -> None:
    assert life(replace(HEADER, host="elsewhere")) is Life.UNKNOWN
    assert life(None) is Life.UNKNOWN
    assert life(replace(header_of_this_process(RUN_ID, "", None), pid=2**22 + 1)) is Life.DEAD
