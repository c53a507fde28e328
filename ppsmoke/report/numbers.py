"""Figures in words, as the report has them."""

from __future__ import annotations


def seconds(value: float | None) -> str:
    """'0.31 ms', '8.4 ms', '3.9 s', '600 s'; '-' for what is not known."""
    if value is None:
        return "-"
    if abs(value) < 0.001:
        return f"{value * 1000:.2f} ms"
    if abs(value) < 0.1:
        return f"{value * 1000:.1f} ms"
    if abs(value) < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if abs(value) < 100 else f"{value:.0f} s"


def milliseconds(value: float | None) -> str:
    """A figure of a column in ms: '8.41'."""
    return "-" if value is None else f"{value * 1000:.2f}" if abs(value) < 0.1 else f"{value * 1000:.0f}"


def whole_seconds(value: float | None) -> str:
    """A figure of a column in s: '3.9'."""
    return "-" if value is None else f"{value:.1f}"


def percent(value: float) -> str:
    return f"{value * 100:.0f} %"


def span(values: list[float]) -> str:
    """'0.9 to 1.1 ms', or one figure where all are alike."""
    low, high = seconds(min(values)), seconds(max(values))
    if low == high:
        return low
    number, unit = low.split(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"
