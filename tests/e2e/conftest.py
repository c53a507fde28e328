from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import Box


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.platform != "linux":
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="finds processes through /proc"))


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_foreground_job() -> Iterator[None]:
    """Under nohup, or behind `&`, pytest has these ignored, and so would everything that it starts."""
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        # Ours alone: a handler, unlike an ignored signal, is not inherited.
        signal.signal(number, lambda number, frame: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A place of its own for what a test starts; at the end nothing may be left in it."""
    place = Box(tmp_path)
    try:
        yield place
    finally:
        place.close()
