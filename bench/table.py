"""The report as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.goals import Verdict
from bench.samples import Case, Samples, Spread
from ppsmoke.wording import columns

# (figure, heading, digits) of each table; a row appears when it has any of them.
_SPEED = (
    ("decode_tok_s", "decode tok/s", 1),
    ("decode_p50_ms", "p50 ms", 2),
    ("decode_p99_ms", "p99 ms", 2),
    ("prefill_tok_s", "prefill tok/s", 0),
    ("first_token_s", "first token s", 3),
)
_HOP = (
    ("hop_ms", "hop ms", 3),
    ("hop_outward_ms", "from engine", 3),
    ("hop_write_ms", "write", 3),
    ("hop_wire_ms", "way", 3),
    ("hop_inward_ms", "to engine", 3),
    ("compute_ms", "all compute", 2),
)
_START = (
    ("first_text_s", "first text s", 2),
    ("interpreter_s", "python", 2),
    ("model_s", "model", 2),
    ("spawn_s", "nodes", 2),
    ("join_s", "join", 2),
    ("ready_s", "ready", 2),
    ("slowest_load_s", "load", 2),
    ("slowest_compile_s", "compile", 2),
    ("prompt_s", "prompt", 2),
    ("teardown_s", "teardown", 2),
)
_MEMORY = (
    ("node_mb", "node MB", 0),
    ("node_peak_mb", "peak", 0),
    ("worker_mb", "largest worker MB", 0),
    ("worker_peak_mb", "peak", 0),
    ("worker_above_mb", "above weights and cache", 0),
    ("all_mb", "all stages", 0),
)
_BYTES = (
    ("activation_bytes", "activation edge, bytes a token", 0),
    ("token_bytes", "token edge", 0),
    ("loopback_bytes", "all loopback traffic, bytes a token", 0),
)
_GOAL_HEAD = ("what", "measured", "low", "high", "at least", "aim", "")
DISTURBED_CORES = 0.1
_TABLES = (
    ("Speed", _SPEED),
    ("Parts of a hop while decoding, and what all stages compute for a token", _HOP),
    ("Start, seconds", _START),
    ("Memory", _MEMORY),
    ("Bytes", _BYTES),
)


def describe(samples: Samples, verdicts: Sequence[Verdict], machine: Mapping[str, Any]) -> str:
    """All tables, what failed, and what was reached."""
    parts = [_machine_lines(machine)]
    for title, figures in _TABLES:
        rows = _rows(samples, figures)
        if len(rows) > 1:
            parts.append([title, *columns(rows, right=lambda column: column > 0)])
    parts.append(["Goals", *columns([_GOAL_HEAD, *map(_goal_row, verdicts)], right=lambda column: 0 < column < 6)])
    parts.append(_notes(samples))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _machine_lines(machine: Mapping[str, Any]) -> list[str]:
    cores, governor = machine.get("cores_usable"), machine.get("governor") or "unknown"
    return [
        f"{machine.get('date')}  {machine.get('cpu')}, {cores} cores, governor {governor}",
        f"{machine.get('system')}, Python {machine.get('python')}, {machine.get('compiler')}",
        "  ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items() if version),
    ]


def _rows(samples: Samples, figures: Sequence[tuple[str, str, int]]) -> list[list[str]]:
    """A heading, then a row for each case with any of the figures; columns that nobody has are left out."""
    found: dict[Case, list[Spread | None]] = {}
    for case in samples.cases():
        row = [samples.spread(case, figure) for figure, _, _ in figures]
        if any(row):
            found[case] = row
    kept = [i for i in range(len(figures)) if any(row[i] for row in found.values())]
    head = ["", *(figures[i][1] for i in kept)]
    return [head, *([str(case), *(_cell(row[i], figures[i][2]) for i in kept)] for case, row in found.items())]


def _cell(measured: Spread | None, digits: int) -> str:
    """The median, and how far the rounds are apart when there are several."""
    if measured is None:
        return "-"
    text = f"{measured.median:.{digits}f}"
    if measured.count == 1:
        return text
    return f"{text} ({measured.low:.{digits}f}..{measured.high:.{digits}f})"


def _goal_row(verdict: Verdict) -> tuple[str, ...]:
    goal, measured = verdict.goal, verdict.measured
    values = ("-", "-", "-") if measured is None else (measured.median, measured.low, measured.high)
    shown = [value if isinstance(value, str) else f"{value:.2f}" for value in values]
    bound = "" if goal.upward else "<= "
    return (goal.what, f"{shown[0]} {goal.unit}", *shown[1:], f"{bound}{goal.least:g}", f"{goal.aim:g}", verdict.word)


def _notes(samples: Samples) -> list[str]:
    disturbed = [sample for sample in samples.all if (sample.foreign_cores or 0) > DISTURBED_CORES]
    notes = [f"failed: {sample.case}, round {sample.round}: {sample.error}" for sample in samples.failed]
    if disturbed:
        worst = max(sample.foreign_cores or 0 for sample in disturbed)
        notes.append(
            f"disturbed: in {len(disturbed)} of {len(samples.all)} runs others used more than {DISTURBED_CORES:g} of a "
            f"core meanwhile, up to {worst:.2f} cores"
        )
    return notes
