from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import Box
from tests.netlab.iroh_relay import NotBuilt, has_cargo, relay_program
from tests.netlab.lab import Lab
from tests.netlab.namespaces import NoLab, check_usable
from tests.netlab.relays import OURS, REAL

IN_CI = os.environ.get("CI") == "true"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last of all: meanwhile the relay is built beside the other tests."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here in item.path.parents)


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """Skips where no lab can be made; in CI that is a failure."""
    try:
        check_usable()
    except NoLab as reason:
        if IN_CI:
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture
def lab(lab_possible: None) -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture(params=[OURS, REAL])
def relay_kind(request: pytest.FixtureRequest) -> str:
    """Both relays; the real one is skipped where it is not built, and in CI only where there is no cargo."""
    kind: str = request.param
    if kind == REAL:
        try:
            relay_program()
        except NotBuilt as reason:
            if IN_CI and has_cargo():
                pytest.fail(str(reason))
            pytest.skip(str(reason))
    return kind


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A place of its own for what a test starts; at the end nothing may be left in it."""
    place = Box(tmp_path)
    try:
        yield place
    finally:
        place.close()
