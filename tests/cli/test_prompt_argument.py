"""--prompt -, which reads standard input."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ppsmoke import prompt_argument
from ppsmoke.errors import UsageError
from ppsmoke.prompt_argument import read_prompt_argument


def test_an_input_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_argument, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(os, "read", lambda _fd, size: b"\0" * size)
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        read_prompt_argument("-")


def test_an_input_that_comes_in_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: Iterator[bytes] = iter([b"Gr\xc3", b"\xbc\xc3\x9fe\r\n", b""])
    monkeypatch.setattr(os, "read", lambda _fd, _size: next(pieces))
    assert read_prompt_argument("-") == "Grüße"
