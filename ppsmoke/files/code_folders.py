"""The folders that code sent to running nodes is unpacked into."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from ppsmoke.stage.new_code import CODE_PREFIX

_DIGEST_LETTERS = 16


def code_folder(parent: Path, sha256: str) -> Path:
    """Of the code whose wheel has that digest."""
    return parent / f"{CODE_PREFIX}{sha256[:_DIGEST_LETTERS]}"


def remove_code(parent: Path, keep: Collection[Path] = ()) -> None:
    """Remove all of them but those of `keep`. Never raises."""
    for folder in parent.glob(f"{CODE_PREFIX}*"):
        if folder not in keep:
            shutil.rmtree(folder, ignore_errors=True)
