"""A limit of the system is a sentence before anything is spawned."""

from __future__ import annotations

import errno
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ppsmoke import process_limits
from ppsmoke.errors import EnvironmentFault
from ppsmoke.process_limits import check_process_limits, refused_by_system


def limits(**given: int) -> Callable[[int], tuple[int, int]]:
    """As resource.getrlimit, with these soft limits and no others."""
    by_number = {getattr(resource, f"RLIMIT_{name}"): value for name, value in given.items()}
    return lambda which: (by_number.get(which, resource.RLIM_INFINITY), resource.RLIM_INFINITY)


def no_more_threads(after: int) -> Callable[[threading.Thread], None]:
    """As Thread.start where only so many may be started."""
    start, left = threading.Thread.start, iter(range(after))

    def bounded(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    return bounded


@pytest.fixture(autouse=True)
def no_control_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_limits, "_PIDS_MAX", tmp_path / "pids.max")


def test_without_limits_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits())
    monkeypatch.setattr(threading.Thread, "start", no_more_threads(0))
    check_process_limits(30)


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits(NOFILE=32))
    check_process_limits(3)
    with pytest.raises(EnvironmentFault, match=r"may open 32 files here, and one of a run of 4 stages needs 34") as e:
        check_process_limits(4)
    assert "ulimit -n" in str(e.value.remedy)


@pytest.mark.parametrize("limit", ["NPROC", "AS", "control group"])
def test_too_few_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str) -> None:
    if limit == "control group":
        (tmp_path / "pids.max").write_text("7\n")
        monkeypatch.setattr(resource, "getrlimit", limits())
    else:
        monkeypatch.setattr(resource, "getrlimit", limits(**{limit: 7}))
    check_process_limits(2)
    monkeypatch.setattr(threading.Thread, "start", no_more_threads(5))
    before = threading.active_count()
    with pytest.raises(EnvironmentFault, match=r"gave 5 threads, and a run of 2 stages needs \d+"):
        check_process_limits(2)
    assert threading.active_count() == before


def test_what_a_system_refuses_later_is_no_fault_of_the_program() -> None:
    for error in (RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many open files"), MemoryError()):
        found = refused_by_system(error)
        assert found is not None
        assert found.exit_status == 3
    assert refused_by_system(RuntimeError("dictionary changed size")) is None
    assert refused_by_system(OSError(errno.ENOENT, "No such file")) is None
