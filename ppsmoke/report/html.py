"""The report as one page for a browser, with everything in it: no other file, no network. Pure, but for its own parts.

Whatever a run said is data: it reaches the page as text only, and the page's own script is the only one that may run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from importlib.resources import files
from string import Template
from typing import Any

from ppsmoke.figures import milliseconds, seconds, whole_seconds
from ppsmoke.report.analysis import Analysis
from ppsmoke.report.critical_path import Link, TokenPath
from ppsmoke.report.story import Story
from ppsmoke.report.text import lacking, machine_row, page, verdicts
from ppsmoke.run_events import TokenArrived
from ppsmoke.wording import member_name, shown_model

_STAGE_HEAD = ("stage", "blocks", "device", "host", "boot", "load", "compile", "ready")


def html_page(story: Story, analysis: Analysis) -> str:
    """The whole file."""
    script = _part("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_part("page.html")).substitute(
        title=html.escape(_title(analysis)),
        style=_part("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
        text=html.escape("\n".join(page(analysis))),
        data=_embedded(page_data(story, analysis)),
    )


def page_data(story: Story, analysis: Analysis) -> dict[str, Any]:
    """What the page's script draws; times are seconds since the run began."""
    requests: dict[str, int] = {}
    for step in story.steps:
        requests.setdefault(step.request_id, len(requests))
    paths = [*([analysis.prefill] if analysis.prefill is not None else []), *analysis.paths]
    rate = [found for found in analysis.culprits if found.about == "tokens" and found.place is not None]
    place = rate[0].place if rate else None
    return {
        "title": _title(analysis),
        "how": analysis.ending.how,
        "under": _under(analysis),
        "figures": _figures(analysis),
        "verdict": verdicts(analysis),
        "end": max(story.last_at, analysis.total_s),
        "started": story.started_at,
        "prompt": story.injected_at,
        "tokens": [_us(moment.at) for moment, _ in story.of(TokenArrived)],
        "token_s": sum(share.mean_s for share in analysis.shares) or None,
        "requests": len(requests),
        "phases": [{"phase": p.title, "begin": _us(p.begin), "end": _us(p.end)} for p in analysis.phases],
        "stages": [
            {
                "stage": stage,
                "states": [
                    [span.state.value, _us(span.begin), _us(span.end), span.detail, span.doing]
                    for span in analysis.states
                    if span.stage == stage
                ],
                "steps": [
                    [
                        requests[step.request_id],
                        step.sequence,
                        step.part,
                        *(_us(at) for at in (step.arrived, step.began, step.done, step.back, step.written)),
                    ]
                    for step in story.steps
                    if step.stage == stage
                ],
            }
            for stage in range(analysis.stage_count)
        ],
        "members": [
            {"at": _us(at), "seen_by": e.seen_by, "member": e.member, "state": e.state, "reason": e.reason}
            for at, e in analysis.members
        ],
        "paths": [{"sequence": path.sequence, "links": [_link(link) for link in path.links]} for path in paths],
        "usual": _usual(paths),
        "shares": [
            {
                "source": share.place.source,
                "target": share.place.target,
                "order": _order(share.place.source, share.place.target, analysis.stage_count),
                "mean_s": share.mean_s,
                "p50_s": share.p50_s,
                "p99_s": share.p99_s,
                "share": share.share,
                "parts": share.parts,
            }
            for share in analysis.shares
        ],
        "culprit": [place.source, place.target] if place is not None else None,
        "tables": list(_tables(analysis)),
    }


def _embedded(data: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return files("ppsmoke.report").joinpath(name).read_text(encoding="utf-8")


def _title(a: Analysis) -> str:
    return f"Run {a.run_id[:8] or '-'}: {shown_model(a.model_id) or '-'} in {a.stage_count} stages"


def _under(a: Analysis) -> str:
    parts = [f"exit status {a.ending.exit_status}"] if a.ending.exit_status is not None else []
    parts += [a.ending.error.what] if a.ending.error is not None else []
    parts += [lacking(a)] if a.missing else []
    return ", ".join(parts)


def _figures(a: Analysis) -> list[tuple[str, str]]:
    rows = [("in all", seconds(a.total_s))]
    rows += [("to the first token", seconds(a.ttft_s))] if a.ttft_s is not None else []
    rows += [("answers", str(a.answers))] if a.answers is not None else []
    rows += [("tokens", str(a.tokens))] if a.tokens else []
    rows += [("tokens a second", f"{a.tokens_per_s:.1f}")] if a.tokens_per_s else []
    rows += [("between tokens, p50", seconds(a.gap_p50_s))] if a.gap_p50_s is not None else []
    rows += [("between tokens, p99", seconds(a.gap_p99_s))] if a.gap_p99_s is not None else []
    rows += [("USD at most", f"{a.money.so_far:.4f}")] if a.money is not None else []
    return rows


def _tables(a: Analysis) -> Iterable[tuple[str, str, list[str], list[list[str]], dict[str, list[int]]]]:
    """Title, caption, head, rows, and which columns hold text."""
    yield (
        "Stages",
        "Seconds, boot until it had joined; steps in milliseconds, of a decode step's compute, wait and hop the means",
        [*_STAGE_HEAD, "prefill", "decode p50", "p99", "compute", "wait", "hop"],
        [
            [
                str(s.stage),
                f"{s.layers[0]}-{s.layers[1] - 1}" if s.layers is not None else "-",
                s.device or "-",
                s.host or "-",
                *(whole_seconds(value) for value in (s.boot, s.load, s.compile, s.ready)),
                *(milliseconds(value) for value in (s.prefill, s.decode_p50, s.decode_p99, s.compute, s.wait, s.hop)),
            ]
            for s in a.stages
        ],
        {"text": [2, 3]},
    )
    yield (
        "Edges",
        "The way between neighbours",
        ["edge", "path", "round trip", "hop, mean", "path changes"],
        [
            [
                " \N{RIGHTWARDS ARROW} ".join(
                    "orchestrator" if end is None else str(end) for end in (e.source, e.target)
                ),
                e.path or "-",
                seconds(e.round_trip_s),
                seconds(e.hop.mean_s) if e.hop is not None else "-",
                str(e.changes),
            ]
            for e in a.edges
        ],
        {"text": [0, 1]},
    )
    yield (
        "Phases",
        "Of the orchestrator",
        ["phase", "from", "took", "deadline", "option"],
        [[p.title, seconds(p.begin), seconds(p.seconds), seconds(p.deadline_s), p.option or "-"] for p in a.phases],
        {"text": [0, 4]},
    )
    yield (
        "Rented machines",
        "Every attempt; gone: verified as destroyed",
        ["stage", "instance", "USD an hour", "state", "why it was given up"],
        [list(machine_row(machine)) for machine in a.machines],
        {"text": [3, 4], "long": [4]},
    )
    yield (
        "Membership",
        "Every change of whom a member holds for alive",
        ["at", "seen by", "member", "state", "incarnation", "reason"],
        [
            [seconds(at), member_name(e.seen_by), member_name(e.member), e.state, str(e.incarnation), e.reason]
            for at, e in a.members
        ],
        {"text": [1, 2, 3, 5], "long": [5]},
    )
    yield (
        "Last log lines",
        f"Of stage {a.ending.stage}",
        ["line"],
        [[line] for line in a.log_tail],
        {"text": [0], "long": [0]},
    )


def _link(link: Link) -> list[float | int | None]:
    return [link.place.source, link.place.target, _us(link.begin), _us(link.end)]


def _usual(paths: list[TokenPath]) -> int | None:
    """The token of median time, which stands for them all."""
    decode = sorted((path.seconds, i) for i, path in enumerate(paths) if path.sequence > 0)
    return decode[len(decode) // 2][1] if decode else None


def _order(source: int | None, target: int | None, count: int) -> float:
    """The place in a token's way, which begins with the hop back into the first stage."""
    if source is None or target is None:
        return -2.0 if target is None else -1.0
    if source == target:
        return float(source)
    return -2.0 if source == count - 1 and target == 0 else source + 0.5


def _us(value: float) -> float:
    return round(value, 6)
