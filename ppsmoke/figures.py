"""Figures in words: every kind of figure has one form, wherever it is shown."""

from __future__ import annotations

# ---- times


def seconds(value: float | None) -> str:
    """With what it is good for: '0.31 ms', '8.4 ms', '3.9 s', '600 s'; '-' for what is not known."""
    if value is None:
        return "-"
    if abs(value) < 0.001:
        return f"{value * 1000:.2f} ms"
    if abs(value) < 0.1:
        return f"{value * 1000:.1f} ms"
    if abs(value) < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if abs(value) < 100 else f"{value:.0f} s"


def span(values: list[float]) -> str:
    """'0.9 to 1.1 ms', or one figure where all are alike."""
    low, high = seconds(min(values)), seconds(max(values))
    if low == high:
        return low
    number, unit = low.split(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def elapsed(value: float) -> str:
    """'0.4 s', '212 s': as deadlines are given, so that the two can be compared."""
    return f"{max(0.0, value):.1f} s" if value < 9.95 else f"{value:.0f} s"


def in_milliseconds(value: float | None) -> str:
    """Of a round trip, or a token: '0.7 ms', '212 ms'; '-' for what is not known."""
    if value is None:
        return "-"
    return f"{value * 1000:.1f} ms" if value < 0.00995 else f"{value * 1000:.0f} ms"


def duration(value: float) -> str:
    """What may be long: '48 s', '2 min 5 s', '75 min', '14 h', '3 days'."""
    whole = max(0, int(value))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"


def milliseconds(value: float | None) -> str:
    """A figure of a column in ms: '8.41'."""
    return "-" if value is None else f"{value * 1000:.2f}" if abs(value) < 0.1 else f"{value * 1000:.0f}"


def whole_seconds(value: float | None) -> str:
    """A figure of a column in s: '3.9'."""
    return "-" if value is None else f"{value:.1f}"


# ---- bytes and shares


def size(count: float) -> str:
    """Bytes: '96.6 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def part_of_size(done: int, total: int) -> str:
    """Bytes that have come: '12 of 345 MB'."""
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"


def rate(bytes_per_s: float | None) -> str:
    """'23.5 MB/s'; '-' for what is not known."""
    return "-" if bytes_per_s is None else f"{bytes_per_s / 1e6:.3g} MB/s"


def percent(value: float) -> str:
    return f"{value * 100:.0f} %"
