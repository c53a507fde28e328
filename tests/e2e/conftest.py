from __future__ import annotations

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


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A place of its own for what a test starts; at the end nothing may be left in it."""
    place = Box(tmp_path)
    try:
        yield place
    finally:
        place.close()
