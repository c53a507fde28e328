"""Labels of rented instances: `pp-smoke-<run>-<stage>-<nonce>`. Pure.

The prefix finds everything of this tool, the run's part everything of a run, the whole label one create attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ppsmoke.errors import UsageError
from ppsmoke.run_ids import is_run_id, only_run

PREFIX = "pp-smoke"
_LABEL = re.compile(rf"{PREFIX}-([0-9a-f]{{12}})-(\d{{1,4}})-([0-9a-z]+)")
_RUN_PART = 12


def run_label(run_id: str) -> str:
    """What all labels of a run begin with, without the hyphen that follows."""
    return f"{PREFIX}-{run_id[:_RUN_PART]}"


def stage_label(run_id: str, stage: int, nonce: str) -> str:
    """The label of one attempt to rent an instance for `stage`; a fresh `nonce` for each attempt."""
    return f"{run_label(run_id)}-{stage}-{nonce}"


def is_ours(label: str | None) -> bool:
    """Whether this tool made the label; someone's `pp-smoke-notes` is not ours."""
    return label is not None and _LABEL.fullmatch(label) is not None


def stage_of(label: str) -> int | None:
    """The stage in a label of ours; None in any other."""
    match = _LABEL.fullmatch(label)
    return int(match.group(2)) if match else None


def run_label_of(label: str) -> str | None:
    """The run's part of a label of ours; None in any other."""
    match = _LABEL.fullmatch(label)
    return f"{PREFIX}-{match.group(1)}" if match else None


def in_scope(label: str | None, scope: str) -> bool:
    """Whether `label` is the scope itself or one of those below it."""
    return label is not None and (label == scope or label.startswith(f"{scope}-"))


def check_scope(scope: str) -> str:
    """What a user gave as `--label`: at least a run's part, or its id. Raises UsageError: a shorter one could hit other
    runs."""
    scope = scope.rstrip("-")
    if not is_run_id(scope) and not re.fullmatch(rf"{PREFIX}-[0-9a-f]{{{_RUN_PART}}}(-\d{{1,4}}(-[0-9a-z]+)?)?", scope):
        raise UsageError(
            f"--label {scope!r} is not the label of a run or of an instance of this tool",
            remedy=f"Give {PREFIX}-<run> or a whole label, as --teardown shows them, or the run's id as it printed it; "
            "--all takes every run's.",
        )
    return scope


def scope_of_id(scope: str, run_labels: Iterable[str]) -> str:
    """Of a run's id, or its first digits, the label among `run_labels` that is meant; what else `check_scope` lets pass
    stays, and so does an id of which there is no label. Raises UsageError where several are meant."""
    if not is_run_id(scope):
        return scope
    found = only_run(scope, (label.removeprefix(f"{PREFIX}-") for label in run_labels))
    return scope if found is None else f"{PREFIX}-{found}"
