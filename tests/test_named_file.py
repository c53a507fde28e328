"""A file that the user names may be a pipe: one in use is read and written, one without another end is given up."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ppsmoke.named_file import read_named, write_named

PATIENCE_S = 60.0


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_file_is_read_up_to_the_most_bytes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 200_000)
    assert read_named(file, most=1 << 20) == b"x" * 200_000
    assert read_named(file, most=70_001) == b"x" * 70_001
    assert read_named(Path("/dev/null"), most=10) == b""
    assert read_named(Path("/dev/zero"), most=100_000) == bytes(100_000)


def test_a_pipe_is_read_to_its_end_however_late_its_writer_comes(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 200_000,))
    writer.start()
    assert read_named(pipe, most=1 << 20, patience_s=PATIENCE_S) == b"x" * 200_000
    writer.join(PATIENCE_S)


def test_a_pipe_that_nobody_writes_is_given_up(pipe: Path) -> None:
    with pytest.raises(TimeoutError, match=r"nothing came out of it for 0\.1 s"):
        read_named(pipe, most=10, patience_s=0.1)


def test_a_pipe_whose_writer_says_nothing_is_given_up(pipe: Path) -> None:
    both = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(TimeoutError, match="nothing came out of it"):
            read_named(pipe, most=10, patience_s=0.1)
    finally:
        os.close(both)


@pytest.mark.parametrize("name", ["missing/file", "."])
def test_what_is_no_file_is_an_error_of_the_system(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Is a directory"):
        read_named(tmp_path / name, most=10)
    with pytest.raises(OSError, match=r"No such file|Is a directory"):
        write_named(tmp_path / name, "x")


def test_a_file_is_replaced_by_the_text(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("longer than what comes")
    write_named(file, "ü")
    assert file.read_bytes() == "ü".encode()


def test_a_pipe_is_written_however_late_its_reader_comes(pipe: Path) -> None:
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_named(pipe, "x" * 200_000, patience_s=PATIENCE_S)
    reader.join(PATIENCE_S)
    assert got == [b"x" * 200_000]


def test_a_pipe_that_nobody_reads_is_given_up(pipe: Path) -> None:
    with pytest.raises(TimeoutError, match="nobody reads this pipe"):
        write_named(pipe, "x", patience_s=0.1)
