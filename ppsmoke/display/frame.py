"""A frame of the display: a line for the run, one for each stage, for any width. Pure; nothing in it wraps."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ppsmoke.display.state import DisplayState, StageView
from ppsmoke.figures import elapsed, in_milliseconds, part_of_size
from ppsmoke.run_events import StageState
from ppsmoke.wording import counted, printable

_GAP = "  "
_WIDE = 110  # from here on there is room for sentences
_STATE_CELLS = max(len(state.value) for state in StageState)
_TIME_CELLS = 7
_WHAT_LEAST = 24  # a bar with its numbers
_WHAT_CELLS = 44  # of a wide frame, so that its columns seldom move

_STYLES = {
    StageState.RENTING: "yellow",
    StageState.STARTING: "yellow",
    StageState.JOINING: "yellow",
    StageState.FETCHING: "cyan",
    StageState.LOADING: "cyan",
    StageState.COMPILING: "cyan",
    StageState.LOADED: "green",
    StageState.LINKING: "cyan",
    StageState.READY: "green",
    StageState.PREFILL: "green",
    StageState.DECODING: "green",
    StageState.STOPPING: "yellow",
    StageState.STOPPED: "dim",
    StageState.FAILED: "bold red",
}
_PLAIN_LETTERS = str.maketrans({"━": "=", "─": "-", "→": ">", "…": "~", "·": "."})


@dataclass(frozen=True, slots=True)
class Paper:
    """What there is to draw on, in cells. `ascii_only`: a terminal that may not know other letters."""

    width: int
    height: int = 1 << 16
    ascii_only: bool = False


def frame(state: DisplayState, now: float, paper: Paper, note: str = "") -> list[Text]:
    """Lines of at most `paper.width` cells, at most `paper.height` of them.

    `note`: what is waited for in words; shown where the stages' rows do not say it.
    """
    lines = [_head(state, now, paper)] if state.ended is None else []  # what it came to is said in lines of its own
    noted = bool(note) and state.ended is None and (state.all_prepared or state.phase == "TearingDown")
    room = max(0, paper.height - len(lines) - noted)
    shown, hidden = _fitting(state.stages, room)
    table = [_cells(stage, state, now, paper) for stage in shown]
    lines += _aligned(table, paper)
    if hidden and room:
        lines.append(Text(_counted(hidden), "dim"))
    if noted:
        lines.append(Text(note, "dim"))
    return [_finished(line, paper) for line in lines[: max(1, paper.height)]]


# ---- the run's line


def _head(state: DisplayState, now: float, paper: Paper) -> Text:
    text = Text()
    text.append(phase_words(state), _head_style(state))
    for part in _run_parts(state, now):
        text.append(f"{_GAP}{part}")
    right = Text(_GAP.join(_bounds(state, now, paper)))
    free = paper.width - text.cell_len - right.cell_len
    if right and free < len(_GAP):
        text.truncate(max(0, paper.width - right.cell_len - len(_GAP)), overflow="ellipsis")
        free = paper.width - text.cell_len - right.cell_len
    return text.append(" " * max(0, free)).append(right) if right else text


def phase_words(state: DisplayState) -> str:
    """What the run is at."""
    match state.phase:
        case "Planning":
            return "renting the machines" if state.run.remote else "starting the nodes"
        case "Joining":
            return "joining"
        case "Running" if state.tokens:
            return "decoding"
        case "Running":
            return "prefill"
        case "Idle":
            return "waiting for a prompt"
        case "TearingDown" | "Done":
            return "giving the machines back" if state.run.remote else "stopping"
    return "preparing the stages"


def _head_style(state: DisplayState) -> str:
    return "bold" if state.error is None else "bold red"


def _run_parts(state: DisplayState, now: float) -> list[str]:
    """What has come so far, or how long it has been waited for."""
    if state.phase in ("Running", "Idle") and state.tokens:
        return _token_parts(state)
    took = elapsed(now - state.phase_since)
    deadline_s = state.phase_deadline_s
    return [took if deadline_s is None else f"{took} of {deadline_s:g} s"]


def _token_parts(state: DisplayState) -> list[str]:
    if not state.tokens:
        return []
    parts = [f"{state.tokens} of {counted(state.run.max_tokens, 'token')}"]
    if (rate := state.tokens_per_s) is not None:
        parts.append(f"{rate:.1f} tok/s")
    if (first := state.first_token_s) is not None:
        parts.append(f"first {first:.2f} s")
    return parts


def _bounds(state: DisplayState, now: float, paper: Paper) -> list[str]:
    """Money and what is left of the budget, which stay in sight at every width."""
    parts = []
    if state.money is not None:
        parts.append(f"{state.money.so_far:.4f} USD at {state.money.per_hour:.3f}/h")
    if state.budget_ends is not None:
        left = f"{max(0.0, state.budget_ends - now):.0f} s"
        parts.append(f"budget {left}" if paper.width < _WIDE else f"{left} of the budget left")
    return parts


# ---- a stage's line


def _cells(stage: StageView, state: DisplayState, now: float, paper: Paper) -> list[Text]:
    first, end = stage.layers
    style = _STYLES[stage.state]
    return [
        Text(str(stage.index)),
        Text(f"{first}-{end - 1}"),
        Text(stage.host if paper.width >= _WIDE else stage.host.removeprefix("instance ").partition(",")[0], "dim"),
        Text(stage.device),
        Text(stage.state.value, style),
        _what(stage, paper),
        _way(stage, state, paper),
        _time(stage, now, paper),
    ]


def _aligned(rows: list[list[Text]], paper: Paper) -> list[Text]:
    """The columns by their needs, within what the width allows; the sixth, what the stage does, takes what is left."""
    wide = paper.width >= _WIDE
    most = [
        3,
        7,
        40 if wide else 18,
        12 if wide else 6,
        _STATE_CELLS,
        0,
        28 if wide else 16,
        18 if wide else _TIME_CELLS,
    ]
    widths = [min(limit, max((row[i].cell_len for row in rows), default=0)) for i, limit in enumerate(most)]
    widths[4] = _STATE_CELLS
    if wide and rows and all(row[7].cell_len <= _TIME_CELLS for row in rows):
        widths[7] = _TIME_CELLS
    # What goes first where it is narrow: the way to the next stage, the device, the host, the time.
    for column in (6, 3, 2, 7):
        if _free(widths, paper) >= _WHAT_LEAST:
            break
        widths[column] = 0
    needed = max((row[5].cell_len for row in rows), default=0)
    for column in (2, 3, 6):  # nothing is cut beside cells that are empty
        wanted = max((row[column].cell_len for row in rows), default=0)
        if widths[column] and wanted > widths[column]:
            widths[column] += max(0, min(wanted - widths[column], _free(widths, paper) - max(needed, _WHAT_LEAST)))
    widths[5] = max(0, min(_free(widths, paper), max(_WHAT_CELLS, needed) if wide else paper.width))
    right = {0, 7}
    lines = []
    for row in rows:
        line = Text()
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            if column == 5 and not any(row[6:]):
                line.append(_GAP).append_text(cell)  # nothing follows: it may be longer than its column
                break
            if width:
                line.append(_GAP if line else "").append_text(_fitted(cell, width, right=column in right))
        lines.append(line)
    return lines


def _free(widths: list[int], paper: Paper) -> int:
    used = [width for column, width in enumerate(widths) if width and column != 5]
    return paper.width - sum(used) - len(_GAP) * len(used)


def _fitted(cell: Text, width: int, *, right: bool) -> Text:
    cell = cell.copy()
    cell.truncate(width, overflow="ellipsis")
    space = " " * (width - cell.cell_len)
    return Text(space).append_text(cell) if right else cell.append(space)


def _what(stage: StageView, paper: Paper) -> Text:
    """How far the stage is, or what it has come to."""
    if stage.state is StageState.FAILED:
        return Text(re.sub(rf"^stage {stage.index}(: |'s )", "", stage.detail), "red")
    if stage.state in (StageState.STOPPING, StageState.STOPPED) and stage.detail:
        return Text(stage.detail, "dim")
    if stage.done is not None and stage.total:
        return _progress(stage, 20 if paper.width >= _WIDE else 10)
    if not stage.prepared:
        return Text(stage.detail, "dim")
    if stage.compute_s is not None:
        computing, rest = (" computing", " else") if paper.width >= _WIDE else ("", "")
        other = f" + {in_milliseconds(stage.other_s)}{rest}" if stage.other_s is not None else ""
        return Text(f"{in_milliseconds(stage.compute_s)}{computing}{other} a token")
    if stage.load_s is None and stage.compile_s is None:
        return Text()
    return Text(f"load {stage.load_s or 0:.1f}  compile {stage.compile_s or 0:.1f} s", "dim")


def _progress(stage: StageView, bar_cells: int) -> Text:
    assert stage.done is not None
    assert stage.total
    if stage.total == 1:
        return Text(f"1 {stage.unit.removesuffix('s')}", "dim")
    full = round(bar_cells * min(1.0, stage.done / stage.total))
    text = Text().append("━" * full, "cyan").append("─" * (bar_cells - full), "dim")
    if stage.unit == "bytes":
        return text.append(f" {part_of_size(stage.done, stage.total)}")
    return text.append(f" {stage.done} of {stage.total} {stage.unit}")


def _way(stage: StageView, state: DisplayState, paper: Paper) -> Text:
    """The path to the next stage and its round trip."""
    if not stage.path or stage.state is StageState.FAILED or not (stage.prepared or paper.width >= _WIDE):
        return Text()
    target = (stage.index + 1) % len(state.stages)
    trip = "" if stage.round_trip_s is None else f" {in_milliseconds(stage.round_trip_s)}"
    style = {"direct": "", "relay": "yellow", "none": "red"}[stage.path]
    shown = stage.path if stage.path != "none" else "lost"
    return Text(f"→ {target} {shown}{trip}" if paper.width >= _WIDE else f"→{target} {shown}{trip}", style)


def _time(stage: StageView, now: float, paper: Paper) -> Text:
    """How long the stage has been at it, and may be; nothing once it only takes part in the run."""
    if stage.prepared and stage.state is not StageState.STOPPING:
        return Text()
    took = elapsed(now - stage.since)
    if stage.deadline_s is None or paper.width < _WIDE:
        return Text(took, "dim")
    return Text(f"{took} of {stage.deadline_s:g} s", "dim")


# ---- helpers


def _fitting(stages: tuple[StageView, ...], room: int) -> tuple[list[StageView], list[StageView]]:
    """The stages that are shown and those that are not: where not all fit, those that are furthest behind are."""
    if len(stages) <= room:
        return list(stages), []
    order = list(StageState)
    urgent = sorted(stages, key=lambda stage: (stage.state is not StageState.FAILED, order.index(stage.state)))
    chosen = {stage.index for stage in urgent[: max(0, room - 1)]}
    return [s for s in stages if s.index in chosen], [s for s in stages if s.index not in chosen]


def _counted(stages: list[StageView]) -> str:
    counts = Counter(stage.state.value for stage in stages)
    return f"and {len(stages)} more: " + ", ".join(f"{count} {state}" for state, count in counts.items())


def _finished(line: Text, paper: Paper) -> Text:
    line.truncate(paper.width, overflow="ellipsis")
    line.rstrip()
    # A name may have any letters; one that ends a line, a tab, a bell would break the picture.
    plain = printable(line.plain)
    if paper.ascii_only:
        plain = plain.translate(_PLAIN_LETTERS).encode("ascii", "replace").decode()
    if plain != line.plain:
        line.plain = set_cell_size(plain, min(cell_len(plain), paper.width))
    return line
