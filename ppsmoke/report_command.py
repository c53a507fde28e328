"""`pp-smoke-run report DIR`: what happened in a run, from the directory that it left."""

from __future__ import annotations

import json
from pathlib import Path

from ppsmoke.errors import EnvironmentFault
from ppsmoke.report.analysis import analyse
from ppsmoke.report.html import html_page
from ppsmoke.report.source import read_story
from ppsmoke.report.text import page
from ppsmoke.report.trace import trace_json


def report_command(directory: Path, *, as_json: bool, html: Path | None, trace: Path | None) -> int:
    """Print the page of text (or the analysis as one object), and write the files that are asked for.

    Raises UsageError for a directory that is no run's, EnvironmentFault where a file cannot be written.
    """
    story = read_story(directory)
    analysis = analyse(story)
    if html is not None:
        _write(html, html_page(story, analysis))
    if trace is not None:
        _write(trace, json.dumps(trace_json(story, analysis)) + "\n")
    if as_json:
        print(json.dumps(analysis.as_json(), indent=1), flush=True)
    else:
        print("\n".join(page(analysis)), flush=True)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}", remedy="Choose another place.") from error
