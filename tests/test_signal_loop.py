"""Signals at the end of an event loop: none is lost, and none is answered by the interpreter or the system."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Iterator

import pytest

from ppsmoke.signal_loop import ignore_signals_afterwards, run_with_signals

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def came_outside() -> Iterator[list[int]]:
    """What reached the handlers that were installed before the loop."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in NUMBERS}
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("after", [False, True])
def test_one_that_comes_as_the_loop_closes_goes_to_the_handler_before_it(
    came_outside: list[int],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    after: bool,
) -> None:
    close = BaseSelectorEventLoop.close

    def close_under_signal(loop: BaseSelectorEventLoop) -> None:
        if not after:
            os.kill(os.getpid(), number)
        close(loop)
        if after:
            os.kill(os.getpid(), number)

    async def work() -> int:
        for each in NUMBERS:
            asyncio.get_running_loop().add_signal_handler(each, came_outside.append, -1)
        monkeypatch.setattr(BaseSelectorEventLoop, "close", close_under_signal)
        return 7

    assert run_with_signals(work()) == 7
    assert came_outside == [number]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", NUMBERS)
def test_none_comes_through_afterwards_where_the_work_asked_for_that(
    came_outside: list[int], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    close = BaseSelectorEventLoop.close

    def close_under_signal(loop: BaseSelectorEventLoop) -> None:
        close(loop)
        os.kill(os.getpid(), number)

    async def work() -> int:
        for each in NUMBERS:
            asyncio.get_running_loop().add_signal_handler(each, came_outside.append, -1)
        ignore_signals_afterwards()
        monkeypatch.setattr(BaseSelectorEventLoop, "close", close_under_signal)
        return 7

    assert run_with_signals(work()) == 7
    os.kill(os.getpid(), number)
    assert came_outside == []


def test_one_that_comes_in_the_works_last_moment_goes_to_the_loops_handler(came_outside: list[int]) -> None:
    inside: list[int] = []

    async def work() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, inside.append, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    run_with_signals(work())
    assert (inside, came_outside) == ([signal.SIGTERM], [])


def test_the_former_handlers_are_back_after_work_that_failed(came_outside: list[int]) -> None:
    former = {number: signal.getsignal(number) for number in signal.valid_signals()}

    async def work() -> None:
        for number in NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, came_outside.append, -1)
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        run_with_signals(work())
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == former
