"""The report as a page of text, 80 columns wide. Pure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence

from ppsmoke.figures import milliseconds, percent, seconds, whole_seconds
from ppsmoke.report.analysis import Analysis, EdgeFigures, MachineFigures, StageFigures
from ppsmoke.run_events import MemberSeen
from ppsmoke.wording import columns, counted, printable, sentence, shown_model

WIDTH = 80
_MEMBER_LINES = 8
_PHASE_LINES = 14
_OFFER_REASONS = 6
_START_HEAD = ("stage", "blocks", "device", "boot", "load", "compile", "ready", "ready at", "host")


def page(analysis: Analysis) -> list[str]:
    """The lines. What a bundle does not tell is left out, or '-' in a table."""
    blocks = [
        _head(analysis),
        _verdict(analysis),
        _phases(analysis),
        _stages(analysis),
        _edges(analysis),
        _machines(analysis),
        _members(analysis),
        _failure(analysis),
    ]
    lines: list[str] = []
    for block in blocks:
        found = list(block)
        if found:
            lines += ["", *found] if lines else found
    return lines


def _head(a: Analysis) -> Iterator[str]:
    parts = [f"run {a.run_id[:8] or '-'}", shown_model(a.model_id) or "-", f"{a.stage_count} stages"]
    parts += [counted(a.prompt_tokens, "prompt token")] if a.prompt_tokens else []
    parts += ["on rented machines"] if a.remote else []
    yield from _wrapped("  ".join(parts))
    if a.missing:
        yield from _wrapped(lacking(a))
    ended: list[str] = [a.ending.how]
    if a.ending.how == "completed" and a.finish_reason:
        ended.append(f"by {a.finish_reason}")
    if a.ending.exit_status is not None:
        ended.append(f"exit status {a.ending.exit_status}")
    ended.append(f"after {seconds(a.total_s)}")
    yield from _wrapped(", ".join(ended))
    if a.tokens:
        rate = [counted(a.answers, "answer")] if a.answers is not None else []
        rate += [counted(a.tokens, "token")]
        rate += [f"first after {seconds(a.ttft_s)}"] if a.ttft_s is not None else []
        rate += [f"then {a.tokens_per_s:.1f} tok/s"] if a.tokens_per_s else []
        rate += [f"gaps p50 {seconds(a.gap_p50_s)}, p99 {seconds(a.gap_p99_s)}"] if a.gap_p50_s is not None else []
        yield from _wrapped(", ".join(rate))
    if a.money is not None:
        yield f"{a.money.so_far:.4f} USD at most, at {a.money.per_hour:.3f} USD an hour"
    if a.steps_dropped:
        yield f"{a.steps_dropped} steps were too many to be recorded"
    if a.lost:
        yield f"{a.lost} lines of the records could not be read"


def lacking(a: Analysis) -> str:
    """What the directory does not have, as a sentence."""
    return f"{' and '.join(a.missing)} missing in the run's directory: this is what the other files tell"


def _verdict(a: Analysis) -> Iterator[str]:
    rows = verdicts(a)
    if rows:
        yield "what bounded it"
    for name, text in rows:
        yield from _wrapped(text, f"  {name:<7} ", " " * 10)


def _phases(a: Analysis) -> Iterator[str]:
    if not a.phases:
        return
    rows: list[tuple[str, ...]] = [("phase", "from s", "took s", "deadline")]
    first = next((phase for phase in a.phases if phase.phase == "Planning"), None)
    for phase in a.phases:
        limit = f"{phase.deadline_s:g} s {phase.option}".strip() if phase.deadline_s is not None else ""
        # After new code the stages start anew, on the machines that are there.
        name = f"{phase.title} (renting)" if a.remote and phase is first else phase.title
        rows.append((name, f"{phase.begin:.2f}", f"{phase.seconds:.2f}", limit))
    if len(rows) > _PHASE_LINES:  # a run that was held for many prompts
        left_out = len(rows) - _PHASE_LINES
        rows[_PHASE_LINES - 4 : -4] = [(f"({left_out} more)", "", "", "")]
    yield from _fitted(rows, right=lambda column: column in (1, 2))


def _stages(a: Analysis) -> Iterator[str]:
    """Two tables: what each is and how it began, seconds; then its steps, milliseconds."""
    if not a.stages:
        return
    rows: list[tuple[str, ...]] = [_START_HEAD, *(_start_row(stage) for stage in a.stages)]
    yield f"stages, in seconds (boot: until it had joined{', renting included' if a.remote else ''})"
    yield from _fitted(rows, right=lambda column: column in (0, 3, 4, 5, 6, 7))
    if any(stage.decode_p50 is not None or stage.prefill is not None for stage in a.stages):
        head = ("stage", "prefill", "decode p50", "p99", "compute", "wait", "hop", "steps")
        rows = [head, *(_step_row(stage) for stage in a.stages)]
        yield "steps, in milliseconds (compute, wait, hop: means of a decode step)"
        yield from _fitted(rows, right=lambda column: True)


def _start_row(stage: StageFigures) -> tuple[str, ...]:
    blocks = f"{stage.layers[0]}-{stage.layers[1] - 1}" if stage.layers is not None else "-"
    times = (stage.boot, stage.load, stage.compile, stage.ready, stage.ready_at)
    host = stage.host.replace("instance ", "#")  # there is room for little
    return (str(stage.stage), blocks, stage.device or "-", *(whole_seconds(time) for time in times), host)


def _step_row(stage: StageFigures) -> tuple[str, ...]:
    times = (stage.prefill, stage.decode_p50, stage.decode_p99, stage.compute, stage.wait, stage.hop)
    return (str(stage.stage), *(milliseconds(time) for time in times), str(stage.steps or "-"))


def _edges(a: Analysis) -> Iterator[str]:
    if not a.edges:
        return
    head = ("edge", "path", "round trip", "hop mean", "p50", "p99", "share", "changes")
    rows = [head, *(_edge_row(edge) for edge in a.edges)]
    yield "edges, in milliseconds (round trip: before the first token; hop: a token's)"
    yield from _fitted(rows, right=lambda column: column > 1)


def _edge_row(edge: EdgeFigures) -> tuple[str, ...]:
    hop = edge.hop
    figures = (hop.mean_s, hop.p50_s, hop.p99_s) if hop is not None else (None, None, None)
    return (
        f"{_end(edge.source)} -> {_end(edge.target)}",
        edge.path or "-",
        milliseconds(edge.round_trip_s),
        *(milliseconds(figure) for figure in figures),
        percent(hop.share) if hop is not None else "-",
        str(edge.changes or "-"),
    )


def _machines(a: Analysis) -> Iterator[str]:
    if not a.machines:
        return
    yield "rented machines"
    rows: list[tuple[str, ...]] = [("stage", "instance", "USD/h", "state", "why it was given up")]
    rows += [machine_row(machine) for machine in a.machines]
    yield from _fitted(rows, right=lambda column: column < 3)
    if a.offers:
        counts = "; ".join(f"{reason}: {count}" for reason, count in a.offers[:_OFFER_REASONS])
        yield from _wrapped(f"offers that were looked at, and why they were left out: {counts}", "  ", "  ")


def machine_row(machine: MachineFigures) -> tuple[str, ...]:
    """Its cells: stage, instance, price, state, reason."""
    price = "-" if machine.price_per_hour is None else f"{machine.price_per_hour:.3f}"
    stage, instance = ("-" if number is None else str(number) for number in (machine.stage, machine.instance))
    return stage, instance, price, machine.state, machine.reason


def _members(a: Analysis) -> Iterator[str]:
    """Changes as the orchestrator saw them, or all where it saw none; what everybody expects (alive, left) in brief."""
    seen = [(at, event) for at, event in a.members if event.seen_by is None] or list(a.members)
    if not seen:
        return
    yield "membership, as the orchestrator saw it" if any(e.seen_by is None for _, e in seen) else "membership"
    # While a run is taken down members go, and some are missed before they have said so.
    over = next((phase.begin for phase in a.phases if phase.phase == "TearingDown"), math.inf)
    odd = [(at, event) for at, event in seen if event.state not in ("alive", "left") and at <= over]
    joined = [at for at, event in seen if event.state == "alive"]
    if joined:
        yield f"  {_count(seen, 'alive')} alive, first seen at {min(joined):.2f} to {max(joined):.2f} s"
    for at, event in odd[:_MEMBER_LINES]:
        yield from _wrapped(_member(event), f"  {at:8.2f} s  ", " " * 14)
    if len(odd) > _MEMBER_LINES:
        yield f"  and {len(odd) - _MEMBER_LINES} changes more"
    left = [at for at, event in seen if event.state == "left"]
    if left:
        yield f"  {_count(seen, 'left')} left, the last at {max(left):.2f} s"


def _count(seen: Sequence[tuple[float, MemberSeen]], state: str) -> int:
    return len({event.member for _, event in seen if event.state == state})


def _member(event: MemberSeen) -> str:
    who = "the orchestrator" if event.member is None else f"stage {event.member}"
    why = f": {event.reason}" if event.reason else ""
    return f"{who} {event.state} (incarnation {event.incarnation}){why}"


def _failure(a: Analysis) -> Iterator[str]:
    error = a.ending.error
    if error is not None:
        where = f" (phase: {error.phase})" if error.phase and error.phase not in error.what else ""
        yield from _wrapped(f"error {error.code}: {sentence(error.what)}{where}")
        if error.remedy:
            yield from _wrapped(f"fix: {sentence(error.remedy)}", "  ", "  ")
    if a.log_tail and a.ending.how != "completed":
        yield f"last log lines of stage {a.ending.stage}"
        for line in a.log_tail:
            yield _cut(f"  | {_shown(line)}")


def verdicts(a: Analysis) -> list[tuple[str, str]]:
    """What bounded the start, the prompt and the tokens, what led to the end and what may be left, each with its
    sentence."""
    rows = [(str(found.about), sentence(found.sentence)) for found in a.culprits]
    rows += [("end", sentence(a.ending.sentence))] if a.ending.how != "completed" else []
    return [*rows, ("left", sentence(a.ending.left))] if a.ending.left else rows


def _wrapped(text: str, first: str = "", later: str = "  ") -> list[str]:
    return textwrap.wrap(
        _shown(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,  # a path is there to be copied
    ) or [first]


def _fitted(rows: Sequence[Sequence[str]], right: Callable[[int], bool]) -> Iterator[str]:
    """A table in which a last column that is too wide is cut, and one that is empty is left out."""
    width = max(index + 1 for row in rows[1:] for index, cell in enumerate(row) if cell)
    clean = [[_shown(cell) for cell in row[:width]] for row in rows]
    for line in columns(clean, right=right):
        yield _cut(f"  {line}")


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def _end(stage: int | None) -> str:
    return "orch." if stage is None else str(stage)


def _shown(text: str) -> str:
    return printable(text.expandtabs(4), "\N{REPLACEMENT CHARACTER}")
