"""`pp-smoke-run report DIR`: what happened in a run, from the directory that it left."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ppsmoke.bundle.folder import folder_of_run, run_folders
from ppsmoke.bundle.names import ENVIRONMENT, TRACE
from ppsmoke.errors import EnvironmentFault, UsageError
from ppsmoke.logs import state_dir
from ppsmoke.named_file import write_named
from ppsmoke.report.analysis import analyse
from ppsmoke.report.html import html_page
from ppsmoke.report.source import read_story
from ppsmoke.report.text import page
from ppsmoke.report.trace import trace_json
from ppsmoke.run_ids import is_run_id
from ppsmoke.terminal import Terminal


def report_command(directory: Path | None, *, as_json: bool, html: Path | None, trace: Path | None) -> int:
    """Print the page of text (or the analysis as one object), and write the files that are asked for.

    Without a directory it is the newest run's in the usual place; in place of one a run's id may stand, as it printed
    it. With the page for a browser, and no other place for the trace, the trace goes into the run's directory, if that
    may be written to.

    Raises UsageError where there is no directory and for one that is no run's, EnvironmentFault where a file cannot be
    written.
    """
    place = _newest() if directory is None else _named(directory)
    story = read_story(place)
    analysis = analyse(story)
    if html is not None:
        _write(html, html_page(story, analysis))
    if trace is not None or html is not None:
        text = json.dumps(trace_json(story, analysis)) + "\n"
        if trace is not None:
            _write(trace, text)
        elif os.access(place, os.W_OK | os.X_OK):
            _write(place / TRACE, text)
        else:
            Terminal().line(f"no {TRACE} was written: {place} may not be written to; --trace FILE puts it elsewhere")
    if as_json:
        print(json.dumps(analysis.as_json(), indent=1), flush=True)
    else:
        print("\n".join(page(analysis)), flush=True)
    return 0


def _named(directory: Path) -> Path:
    given = str(directory)
    return folder_of_run(given, os.environ) if is_run_id(given) and not directory.exists() else directory


def _newest() -> Path:
    found = [path for path in run_folders(os.environ) if (path / ENVIRONMENT).is_file()]
    if not found:
        raise UsageError(
            f"no run has left anything in {state_dir(os.environ) / 'runs'}",
            remedy="Give the directory: what --log-dir said, or the run printed.",
        )
    return max(found, key=lambda path: (path / ENVIRONMENT).stat().st_mtime)


def _write(path: Path, text: str) -> None:
    try:
        write_named(path, text)
    except OSError as error:
        raise EnvironmentFault(
            f"the file {path} cannot be written: {error.strerror}", remedy="Choose another place."
        ) from error
    Terminal().line(f"wrote {path}")
