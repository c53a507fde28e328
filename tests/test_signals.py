"""What a process's end is called, and what to do about it."""

from __future__ import annotations

import signal

import pytest

from ppsmoke.signals import ending, ending_remedy


@pytest.mark.parametrize(
    ("status", "words", "remedy"),
    [
        (7, "with exit status 7", None),
        (-signal.SIGKILL, "by SIGKILL", "out of memory"),
        (-signal.SIGBUS, "by SIGBUS", "model file was cut short"),
        (-signal.SIGSEGV, "by SIGSEGV", None),
    ],
)
def test_an_end_in_words(status: int, words: str, remedy: str | None) -> None:
    assert ending(status) == words
    said = ending_remedy(status)
    assert said is None if remedy is None else remedy in str(said)
