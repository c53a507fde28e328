"""`python -m ppsmoke.models.share_program`: fetch one stage's share of a model, beside the node that needs it.

A process of its own, so that the node stays small, never waits, and can end the fetch at any moment. It reads one line
of JSON, `{"model", "stage", "num_stages"}` or `{"model", "layers": [start, end]}`, and writes lines of JSON:
`{"done", "total"}` while it fetches, at the end `{"path"}` or `{"error": {"code", "message", "remedy"}}`. When its
input ends before that, it ends. Its environment is the node's, which says how the orchestrator is reached, whose file
the model may be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.files.models import SCHEME, fetch_from_orchestrator
from ppsmoke.helper_program import read_request, run_program, write_line
from ppsmoke.model_facts import stage_tensors
from ppsmoke.models.ensure import ensure_share
from ppsmoke.models.resolve import parse_model
from ppsmoke.models.share import Announced, Wanted, stage_share
from ppsmoke.plan import check_stage_count
from ppsmoke.roles import layer_range
from ppsmoke.stage.orchestrator_files import orchestrator_files
from ppsmoke.stage.settings import parse_settings


def main() -> int:
    """Exit status 0 with a path, 1 with an error."""
    request = read_request()
    try:
        write_line({"path": str(_fetch(request["model"], _wanted(request)))})
        return 0
    except PpError as error:
        write_line({"error": {"code": error.code, "message": error.what, "remedy": error.remedy}})
        return 1


def _fetch(model: str, wanted: Wanted) -> Path:
    if not model.startswith(SCHEME):
        return ensure_share(parse_model(model), wanted, progress=_Lines())
    with orchestrator_files(parse_settings(os.environ)) as reader:
        return fetch_from_orchestrator(reader, model, wanted, _Lines())


def _wanted(request: Mapping[str, Any]) -> Wanted:
    if "layers" in request:
        start, end = request["layers"]
        return stage_share(int(start), int(end))
    stage, num_stages = int(request["stage"]), int(request["num_stages"])

    def of_stage(model: Announced) -> Iterable[str]:
        check_stage_count(num_stages, model.facts.num_layers)
        return stage_tensors(model.facts, *layer_range(stage, num_stages, model.facts.num_layers))

    return of_stage


class _Lines:
    """Progress as lines for the node."""

    def update(self, label: str, done: int, total: int | None) -> None:
        write_line({"done": done, "total": total})

    def note(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_program(main)
