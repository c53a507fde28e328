"""Says at the end of a test run how large the fault matrix was, also where several processes shared its cases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from tests.vast.fault_cases import TOTALS, Totals

_OUTPUT = "fault_matrix"


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = {**asdict(TOTALS), "by_fault": dict(TOTALS.by_fault)}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of pytest-xdist: a process that ran a part of the tests has ended."""
    output = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if output is not None:
        TOTALS.add(Totals(**output))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TOTALS.cases:
        terminalreporter.write_line(TOTALS.describe())
