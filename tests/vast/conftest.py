"""Says at the end of a test run how large the fault matrix was."""

from __future__ import annotations

import pytest

from tests.vast.fault_cases import TOTALS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TOTALS.cases:
        terminalreporter.write_line(TOTALS.describe())
